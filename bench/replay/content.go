package replay

import (
	"context"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// What a rollout of the demo has, on the average: turns, tokens of a turn, and bytes of text.
const (
	turns        = 7
	promptTokens = 600
	sampled      = 400
	answerBytes  = 1500
	toolBytes    = 2500
)

// vocabulary of the token ids that are drawn.
const vocabulary = 32_000

// part is what models and tools say in one turn.
type part struct {
	prompt, tokens []int32
	logprobs       []float32
}

// text is n bytes of words of a bounded vocabulary.
func text(n int) string {
	const words = "func return error test file the value is not what was expected in line of package main if nil "
	return strings.Repeat(words, n/len(words)+1)[:n]
}

// ids draws token ids, which follow a Zipf distribution.
func ids(zipf *rand.Zipf, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(zipf.Uint64() * 7919 % vocabulary)
	}
	return list
}

func newPart(rng *rand.Rand, zipf *rand.Zipf) part {
	p := part{prompt: ids(zipf, promptTokens), tokens: ids(zipf, sampled), logprobs: make([]float32, sampled)}
	for i := range p.logprobs {
		p.logprobs[i] = -float32(math.Exp(2.5*rng.NormFloat64() - 3))
	}
	return p
}

// rollout makes up an episode behind its start: turns and tools, the trajectory file, the verdict.
func (w *world) rollout(ctx context.Context, e events.Event) error {
	started, err := events.Data[events.RolloutStarted](e)
	if err != nil {
		return err
	}
	h := fnv.New64a()
	h.Write([]byte(e.Entity))
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	zipf := rand.NewZipf(rng, 1.1, 4, vocabulary)
	t := &storage.Trajectory{Run: run, Group: started.Group, Rollout: e.Entity, Task: started.Task,
		StopReason: events.StopFinished, DispatchVersion: started.PolicyVersion}
	var facts []events.Event
	for i := range turns {
		p := newPart(rng, zipf)
		turn := events.TurnSampled{
			Turn: i, Content: text(answerBytes), PromptDelta: p.prompt, TokenIDs: p.tokens,
			Logprobs: p.logprobs, NewSegment: i == 0,
			PolicyVersion: started.PolicyVersion, FinishReason: "stop", PromptTokens: promptTokens,
			CompletionTokens: sampled, StartedAt: time.Now().UTC(), LatencyMS: 9,
		}
		t.Messages = append(t.Messages,
			storage.Message{Index: int32(2 * i), Turn: int32(i), Role: "user", TokenIDs: p.prompt,
				Logprobs: make([]float32, promptTokens), LossMask: make([]bool, promptTokens), PolicyVersion: -1},
			storage.Message{Index: int32(2*i + 1), Turn: int32(i), Role: "assistant", Content: turn.Content,
				TokenIDs: p.tokens, Logprobs: p.logprobs, LossMask: slices.Repeat([]bool{true}, sampled),
				PolicyVersion: started.PolicyVersion, FinishReason: "stop"})
		if i == turns-1 {
			sampledTurn := fact(events.TurnSampledType, e.Entity, events.Ordinal(i), turn)
			sampledTurn.Route = runfile.RouteFinal
			facts = append(facts, sampledTurn)
			break
		}
		turn.FinishReason, turn.ToolCalls = "tool_calls",
			[]events.ToolCall{{ID: "c", Name: "run", Arguments: `{"command":"go test ./..."}`}}
		sampledTurn := fact(events.TurnSampledType, e.Entity, events.Ordinal(i), turn)
		sampledTurn.Route = "pool-shell"
		facts = append(facts, sampledTurn, fact(events.ToolsCompletedType, e.Entity,
			events.Ordinal(i), events.ToolsCompleted{
				Turn: i, Results: []events.ToolResult{{CallID: "c", Name: "run", Content: text(toolBytes),
					StartedAt: time.Now().UTC(), DurationMS: 12}},
				Runner: "bench", Isolation: "none", Filesystem: "none",
			}))
	}
	file, err := storage.EncodeTrajectory(t)
	if err != nil {
		return err
	}
	ref, err := storage.PutNamed(ctx, w.store, "runs/"+run+"/trajectories/"+e.Entity, ".arrow", file)
	if err != nil {
		return err
	}
	reward := float64(rng.IntN(2))
	facts = append(facts,
		fact(events.RolloutFinishedType, e.Entity, "0", events.RolloutFinished{
			Task: started.Task, StopReason: events.StopFinished, Turns: turns, Tokens: turns * (promptTokens + sampled),
			Sampled: turns * sampled, Samples: 1,
			Trajectory: ref, MinVersion: started.PolicyVersion, MaxVersion: started.PolicyVersion,
		}),
		fact(events.RolloutScoredType, e.Entity, "0", events.RolloutScored{
			Reward: reward, Components: map[string]float64{"reward": reward}, TaskDigest: "sha256:" + started.Task,
			DurationMS: 20, Trajectory: ref,
		}))
	_, err = w.append(ctx, e.Seq, facts...)
	return err
}
