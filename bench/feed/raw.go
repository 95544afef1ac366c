package feed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// writeRaw writes files as they are, each synced: what nothing can beat that loses nothing.
func writeRaw(ctx context.Context, folder string, files [][]byte) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	work, _ := errgroup.WithContext(ctx)
	work.SetLimit(workers)
	for i, data := range files {
		work.Go(func() error {
			file, err := os.Create(filepath.Join(folder, strconv.Itoa(i)))
			if err != nil {
				return err
			}
			_, err = file.Write(data)
			return errors.Join(err, file.Sync(), file.Close())
		})
	}
	return work.Wait()
}

// appendRaw publishes a message for each pushed rollout, as many at once as are pushed, to a stream
// with the server's defaults. A message is as large as the rollout's event with its headers, and
// has a subject of its own, too.
func (p plane) appendRaw(ctx context.Context, rollouts []*rollout) (seconds float64, err error) {
	sizes, err := p.finishedSizes(ctx)
	if err != nil {
		return 0, err
	}
	js := p.log.JetStream()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "BENCH_RAW", Subjects: []string{"bench.raw.*"},
		Storage: jetstream.FileStorage}); err != nil {
		return 0, err
	}
	return timed(func() error {
		return each(ctx, rollouts, func(ctx context.Context, r *rollout) error {
			_, err := js.Publish(ctx, "bench.raw."+r.id, make([]byte, sizes[r.finished]))
			return err
		})
	})
}

// finishedSizes are the bytes of headers and data of the events that a push has
// appended, by their sequences.
func (p plane) finishedSizes(ctx context.Context) (map[uint64]int, error) {
	consumer, err := p.log.JetStream().OrderedConsumer(ctx, events.RunStream(run), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{events.Event{Run: run, Type: events.RolloutFinishedType, Entity: "*"}.Subject()},
	})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	sizes := map[uint64]int{}
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		sizes[meta.Sequence.Stream] = (&nats.Msg{Header: m.Headers(), Data: m.Data()}).Size()
		if meta.NumPending == 0 {
			return sizes, nil
		}
	}
}

// readRaw reads objects as they are, one after the other.
func readRaw(root string, files []storage.Ref) error {
	for _, f := range files {
		if _, err := os.ReadFile(filepath.Join(root, f.Key)); err != nil {
			return err
		}
	}
	return nil
}
