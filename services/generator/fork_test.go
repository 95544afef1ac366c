package generator

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestForkTrainsOnItsOwnTurns cuts random episodes: the samples of a fork are those of the whole
// episode that it went on with, with a loss on its own turns alone.
func TestForkTrainsOnItsOwnTurns(t *testing.T) {
	forks := 0
	for seed := range uint64(60) {
		r, _ := episode(seed)
		whole, err := trajectory(runfile.RunConfig{}, runfile.TaskSpec{Name: "a"}, r, events.StopMaxTurns)
		if err != nil {
			t.Fatal(err)
		}
		for r.Copied = 1; r.Copied < len(r.Turns); r.Copied++ {
			forks++
			written, err := trajectory(runfile.RunConfig{}, runfile.TaskSpec{Name: "a"}, r, events.StopMaxTurns)
			if err != nil {
				t.Fatal(err)
			}
			all, samples := whole.Samples(), written.Samples()
			all = all[max(0, len(all)-len(samples)):]
			for i, s := range samples {
				var mask []bool
				for _, turn := range all[i].Turns { // what the fork did not sample itself loses its loss
					if int(turn.Turn) < r.Copied {
						for k := range turn.Length {
							all[i].LossMask[turn.Start+k] = false
							all[i].SamplerLogprobs[turn.Start+k] = 0
						}
					}
				}
				mask = all[i].LossMask
				if !slices.Equal(s.Tokens, all[i].Tokens) || !slices.Equal(s.LossMask, mask) ||
					!slices.Equal(s.SamplerLogprobs, all[i].SamplerLogprobs) {
					t.Fatalf("seed %d, fork behind turn %d, sample %d:\n%v\n%v, not\n%v\n%v", seed, r.Copied-1, i,
						s.Tokens, s.LossMask, all[i].Tokens, mask)
				}
			}
			own := 0
			for _, turn := range r.Turns[r.Copied:] {
				own += len(turn.TokenIDs)
			}
			if f := events.NewRolloutFinished(written); f.Sampled != own || len(samples) == 0 ||
				samples[0].RolloutSampled != int32(own) || f.MinVersion != 0 && f.MinVersion < int64(r.Copied) {
				t.Fatalf("seed %d, fork behind turn %d: %+v, %d tokens are its own", seed, r.Copied-1, f, own)
			}
		}
	}
	if forks < 50 {
		t.Errorf("%d forks only", forks)
	}
}

// TestForkBegins: a fork has its origin's turns before it asks for one of its own, however
// often its start is delivered.
func TestForkBegins(t *testing.T) {
	log := natstest.Log(t)
	server := serve(t, text(final))
	open(t, log, "r", server.URL, nil)
	calls := []events.ToolCall{{ID: "c", Name: "n", Arguments: "{}"}}
	first := servicetest.Event(t, "r", events.TurnSampledType, rollout,
		"0", events.TurnSampled{Turn: 0, Content: "said before", ToolCalls: calls, FinishReason: "tool_calls"})
	first.Route = runfile.RouteFinal
	servicetest.Append(t, log, first)
	answerTools(t, log, "r", events.TurnSampled{Turn: 0, ToolCalls: calls})
	const id, lost = "g000002-0", "g000002-1"
	for fork, origin := range map[string]events.Origin{id: {Rollout: rollout, Turn: 0},
		lost: {Rollout: rollout, Turn: 7}} {
		servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutStartedType, fork,
			"0", events.RolloutStarted{
				Group: "g000002", Task: "a", Deadline: time.Now().Add(time.Hour), Origin: &origin,
			}))
	}
	s := service(t, log)
	for _, e := range servicetest.All(t, log, "r", events.RolloutStartedType) {
		if e.Entity == rollout {
			continue
		}
		facts, err := s.Handle(t.Context(), messageOf(log, e))
		if !errors.Is(err, pipeline.ErrCallAgain) || len(facts) != 1 {
			t.Fatalf("%v, %v", facts, err)
		}
		again, err := s.Handle(t.Context(), messageOf(log, e)) // before anything of it is on the log
		if !errors.Is(err, pipeline.ErrCallAgain) || again[0].ID != facts[0].ID ||
			string(again[0].Data) != string(facts[0].Data) {
			t.Errorf("the second time: %v, %v", again, err)
		}
		if err := record(t, log, s, e); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := log.Rollout(t.Context(), "r", lost); err != nil || r.Failed == nil ||
		r.Failed.Stage != events.StageGenerator {
		t.Errorf("a fork behind a turn that there is not: %+v, %v", r.Failed, err)
	}
	r, err := log.Rollout(t.Context(), "r", id)
	if err != nil {
		t.Fatal(err)
	}
	if r.Copied != 1 || len(r.Turns) != 2 || r.Turns[0].Content != "said before" || len(r.Tools) != 1 ||
		r.Finished == nil || r.Finished.Turns != 2 {
		t.Errorf("%+v", r)
	}
	asked := server.requests[len(server.requests)-1].body.Messages
	if len(asked) != 4 || asked[2].Content != "said before" || asked[3].Content != "seen {}" {
		t.Errorf("it was asked %+v", asked)
	}
}
