package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// fold folds the run's books, as an audit does, from its stream or its archive.
func (p *plane) fold(ctx context.Context, want uint64) error {
	books := books.New(run)
	for e, err := range p.log.All(ctx, run, 1) {
		if err == nil {
			err = books.Apply(e)
		}
		if err != nil {
			return err
		}
	}
	if books.LastSeq != want {
		return fmt.Errorf("%d events of %d", books.LastSeq, want)
	}
	return nil
}

func (p *plane) measureStream(ctx context.Context, r *Result, progress func(string)) error {
	stream, err := p.log.JetStream().Stream(ctx, events.RunStream(run))
	if err != nil {
		return err
	}
	state := stream.CachedInfo().State
	r.Events, r.Bytes = state.LastSeq, state.Bytes
	progress(fmt.Sprintf("folding %d events of the stream, %d times, and reading them barely", r.Events, r.Pairs))
	c, err := inTurns(r.Pairs, float64(r.Events),
		func() error { return p.fold(ctx, r.Events) },
		func() error { return rawRead(ctx, p.log.JetStream(), r.Events) })
	r.Replay, r.Raw, r.ReplayRatio, r.ReplayCPU = c.a, c.b, c.ratio, c.cpu
	return err
}

// rawRead reads a stream's messages with an ordered consumer and does nothing with them.
func rawRead(ctx context.Context, js jetstream.JetStream, last uint64) error {
	consumer, err := js.OrderedConsumer(ctx, events.RunStream(run), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	it, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream >= last {
			return nil
		}
	}
}

// measureVerify lets a process of its own make every decision again.
func (p *plane) measureVerify(ctx context.Context, r *Result) (err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, r.Rondo, "replay", run, "--verify", "--json", "--quiet", "--store", p.objects())
	cmd.Env = append(os.Environ(), "RONDO_NATS="+p.server.URL()) // arguments are seen by other users
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if r.PeakMiB, err = watched(cmd.Process.Pid, ended); err != nil {
		return fmt.Errorf("%w: %s%s", err, said.Bytes(), out.Bytes())
	}
	r.VerifySeconds = time.Since(began).Seconds()
	r.Verify = float64(r.Verified) / r.VerifySeconds
	var found struct {
		Checked     map[string]int `json:"checked"`
		Differences int            `json:"differences"`
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return err
	}
	for _, n := range found.Checked {
		r.VerifiedFacts += n
	}
	if found.Differences > 0 || r.VerifiedFacts < r.Verified {
		return fmt.Errorf("%d facts checked, %d differences", r.VerifiedFacts, found.Differences)
	}
	return nil
}

// watched waits for a process and gives its largest resident memory in MiB, as the kernel counts it
// while it runs; 0 where /proc does not say. What a parent is told at the end would count what the
// parent itself had when it started the process.
func watched(pid int, ended <-chan error) (peak float64, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return peak, err
		case <-tick.C:
			peak = max(peak, highWater(pid))
		}
	}
}

func highWater(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	n, _ := strconv.ParseFloat(string(kib), 64) // 0 for a process that is over
	return n / 1024
}

// measureArchive seals the run, deletes its stream, and reads the segments.
func (p *plane) measureArchive(ctx context.Context, r *Result, progress func(string)) error {
	progress("sealing the run")
	sealed, err := p.log.Appender.Seal(ctx, run, true)
	if err != nil {
		return err
	}
	for _, s := range sealed {
		r.ArchiveBytes += s.Segment.Size
	}
	if err := p.log.Streams.DeleteRun(ctx, run); err != nil {
		return err
	}
	progress(fmt.Sprintf("folding %d segments, and reading them barely", len(sealed)))
	c, err := inTurns(r.Pairs, float64(r.Events),
		func() error { return p.fold(ctx, r.Events) },
		func() error { return p.rawSegments(ctx, sealed, r.Events) })
	r.Archive, r.ArchiveRaw, r.ArchiveRatio, r.ArchiveCPU = c.a, c.b, c.ratio, c.cpu
	return err
}

// rawSegments reads segments with the Arrow library and does nothing with their columns.
func (p *plane) rawSegments(ctx context.Context, sealed []events.SegmentSealed, want uint64) error {
	rows := int64(0)
	for _, s := range sealed {
		data, err := p.store.Get(ctx, s.Segment.Key)
		if err != nil {
			return err
		}
		file, err := ipc.NewFileReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		for i := range file.NumRecords() {
			batch, err := file.RecordBatchAt(i)
			if err != nil {
				return err
			}
			rows += batch.NumRows()
			batch.Release()
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	if uint64(rows) != want {
		return fmt.Errorf("%d rows of %d events", rows, want)
	}
	return nil
}
