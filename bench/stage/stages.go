package stage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// newInput is the i-th input: a finished rollout, an entity of its own.
func newInput(i int) events.Event {
	rollout := events.RolloutID(events.GroupID(int64(i/8+1)), i%8)
	digest := fmt.Sprintf("%064x", i)
	e, err := events.New(benchRun, events.RolloutFinishedType, rollout, "0", events.RolloutFinished{
		Task: "shell-slugify", StopReason: "finished", Turns: 12, Tokens: 18342, Samples: 1,
		Trajectory: storage.Ref{Key: "runs/bench/trajectories/" + rollout + "-" + digest[:16] + ".arrow",
			SHA256: digest, Size: 48213},
		Workspace:  &storage.Ref{Key: "blobs/sha256/00/" + digest, SHA256: digest, Size: 1893},
		MinVersion: 7, MaxVersion: 8,
	})
	if err != nil {
		panic(err) // the payload is constant but for its numbers
	}
	e.Source = topology.Generator
	e.TraceParent = "00-" + digest[32:63] + "1-00f067aa0ba902b7-01"
	return e
}

// score is the handler's work on either side, after decoding and before encoding.
func score(in events.RolloutFinished) events.RolloutScored {
	return events.RolloutScored{
		Reward: 1, Components: map[string]float64{"tests_passed": 12, "tests_total": 12},
		Log: in.Workspace, TaskDigest: in.Trajectory.SHA256, DurationMS: 1834.5,
		Trajectory: in.Trajectory, TextOnly: in.TextOnly,
	}
}

// runtimeStage is the stage as a service of Rondo.
func runtimeStage(ctx context.Context, log *eventlog.Log, slots int, m *meter) error {
	opened, err := events.New(events.Catalogue, events.RunOpenedType, benchRun, "", events.RunOpened{})
	if err != nil {
		return err
	}
	if _, _, err := log.Appender.Append(ctx, opened); err != nil {
		return err
	}
	env := pipeline.Env{Log: log, Logger: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Instance: "bench"}
	return pipeline.RunEffect(ctx, env, pipeline.Effect{
		Name: topology.Scorer, Slots: slots,
		Handle: func(_ context.Context, msg pipeline.Message) ([]events.Event, error) {
			m.begin()
			defer m.end()
			in, err := events.Data[events.RolloutFinished](msg.Event)
			if err != nil {
				return nil, err
			}
			out, err := events.New(msg.Event.Run, events.RolloutScoredType, msg.Event.Entity, "0", score(in))
			out.Prev = msg.Seq
			return []events.Event{out}, err
		},
	})
}

// rawStage is the stage as one would write it directly on nats.go: a consumer's callback and a
// worker for each slot, the same headers on the output, the same condition on its append, the same
// confirmed acknowledgement.
func rawStage(ctx context.Context, log *eventlog.Log, slots int, m *meter) error {
	js := log.JetStream()
	consumer, err := log.Streams.EnsureConsumer(ctx, benchSpec, "")
	if err != nil {
		return err
	}
	messages, failed := make(chan jetstream.Msg, slots), make(chan error, slots)
	var workers sync.WaitGroup
	for range slots {
		workers.Go(func() {
			for msg := range messages {
				if err := rawHandle(js, msg, m); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		select {
		case messages <- msg:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	consuming.Stop()
	<-consuming.Closed()
	close(messages)
	workers.Wait()
	return err
}

func rawHandle(js jetstream.JetStream, msg jetstream.Msg, m *meter) error {
	m.begin()
	defer m.end()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, conditions, err := rawOutput(msg)
	if err != nil {
		return err
	}
	if _, err := js.PublishMsg(ctx, out, conditions...); err != nil {
		return err
	}
	return msg.DoubleAck(ctx)
}

// ceilingStage is the most that nats.go gives: nobody waits for an answer. Outputs are published
// one behind the other with the same headers and conditions, and an input is acknowledged, without
// confirmation, when its output is on the log.
func ceilingStage(ctx context.Context, log *eventlog.Log, _ int, m *meter) error {
	js, err := jetstream.New(log.Conn())
	if err != nil {
		return err
	}
	consumer, err := log.Streams.EnsureConsumer(ctx, benchSpec, "")
	if err != nil {
		return err
	}
	type sent struct {
		in  jetstream.Msg
		out jetstream.PubAckFuture
	}
	waiting, failed := make(chan sent, 1<<14), make(chan error, 2)
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		m.begin()
		out, conditions, err := rawOutput(msg)
		if err == nil {
			var answer jetstream.PubAckFuture
			if answer, err = js.PublishMsgAsync(out, conditions...); err == nil {
				waiting <- sent{msg, answer}
				return
			}
		}
		select {
		case failed <- err:
		default:
		}
	})
	if err != nil {
		return err
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for s := range waiting {
			select {
			case <-s.out.Ok():
				if err := s.in.Ack(); err != nil {
					failed <- err
					return
				}
				m.end()
			case err := <-s.out.Err():
				failed <- err
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	consuming.Stop()
	<-consuming.Closed()
	close(waiting)
	<-answered
	return err
}

// rawOutput is the output of an input, and the conditions of its append.
func rawOutput(msg jetstream.Msg) (*nats.Msg, []jetstream.PublishOpt, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, nil, err
	}
	var in events.RolloutFinished
	if err := json.Unmarshal(msg.Data(), &in); err != nil {
		return nil, nil, err
	}
	body, err := json.Marshal(score(in))
	if err != nil {
		return nil, nil, err
	}
	// rondo.v1.<run>.rollout.<id>.finished
	tokens := strings.Split(msg.Subject(), ".")
	chain := strings.Join(tokens[:5], ".") + "."
	out := nats.NewMsg(chain + "scored")
	out.Data = body
	out.Header = nats.Header{
		"ce-specversion": {"1.0"},
		"ce-id":          {tokens[2] + "/rollout." + tokens[4] + "/scored/0"},
		"ce-type":        {"rondo.v1.rollout.scored"},
		"ce-source":      {"scorer"},
		"ce-time":        {time.Now().UTC().Format(time.RFC3339Nano)},
		"ce-prev":        {strconv.FormatUint(meta.Sequence.Stream, 10)},
		"traceparent":    {childSpan(msg.Headers()["traceparent"])},
	}
	return out, []jetstream.PublishOpt{
		jetstream.WithExpectStream(meta.Stream), jetstream.WithExpectLastSequenceForSubject(meta.Sequence.Stream,
			chain+">"),
	}, nil
}

// childSpan carries a trace on with a span of its own.
func childSpan(parent []string) string {
	if len(parent) != 1 || len(parent[0]) != 55 {
		return ""
	}
	var span [8]byte
	rand.Read(span[:])
	return parent[0][:36] + hex.EncodeToString(span[:]) + parent[0][52:]
}
