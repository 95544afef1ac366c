package querysampler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// plays drives a run whose rollouts end as the test says, one group after the
// other, until it is paused.
type plays struct {
	*decidertest.Log
	t       *testing.T
	waiting []string // rollouts without an outcome, in the order in which they were started
	ended   int      // rollouts
	paused  *events.RunPaused
}

func newPlays(t *testing.T, change func(*runfile.RunConfig)) *plays {
	t.Helper()
	p := &plays{Log: newLog(t, change), t: t}
	opened(p.Log)
	p.settle()
	return p
}

func (p *plays) settle() {
	p.t.Helper()
	for _, e := range p.Settle() {
		switch e.Type {
		case events.RolloutStartedType:
			p.waiting = append(p.waiting, e.Entity)
		case events.RunPausedType:
			paused := decidertest.Data[events.RunPaused](p.t, e)
			p.paused = &paused
		}
	}
}

// until lets up to n rollouts end, and reports whether the run was paused. Groups complete with
// their last member; nothing is batched unless the test does so.
func (p *plays) until(n int, end func(l *decidertest.Log, i int, rollout string) (failed bool)) bool {
	p.t.Helper()
	members := map[string][]events.Member{}
	for range n {
		if p.paused != nil || len(p.waiting) == 0 {
			break
		}
		id := p.waiting[0]
		p.waiting = p.waiting[1:]
		failed := end(p.Log, p.ended, id)
		p.ended++
		group := events.GroupOf(id)
		members[group] = append(members[group], events.Member{Rollout: id, Failed: failed})
		if len(members[group]) == 2 {
			p.Happen(events.GroupCompletedType, group, events.GroupCompleted{Members: members[group]})
			// room for the next one
			p.Happen(events.GroupDroppedType, group, events.GroupDropped{Feed: "trainer", Reason: events.DropStale})
		}
		p.settle()
	}
	return p.paused != nil
}

// scores is a rollout that ends well.
func scores(l *decidertest.Log, rollout string, turn events.TurnSampled) bool {
	l.Happen(events.TurnSampledType, rollout, turn)
	l.Happen(events.RolloutFinishedType, rollout, events.RolloutFinished{TextOnly: turn.TextOnly})
	l.Happen(events.RolloutScoredType, rollout, events.RolloutScored{TextOnly: turn.TextOnly})
	return false
}

// fails is a rollout whose turns are sampled, and that fails all the same: the turns
// say nothing of its outcome.
func fails(l *decidertest.Log, rollout, stage, class string) bool {
	l.Happen(events.TurnSampledType, rollout, events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c", Name: "grep"}}})
	l.Happen(events.ToolsCompletedType, rollout, events.ToolsCompleted{})
	l.Happen(events.RolloutFailedType, rollout, events.RolloutFailed{Stage: stage, Class: class,
		Message: "connection reset"})
	return true
}

// TestRefusedPrompts: prompts that the server refuses are no failures of the server while
// it answers others; where it refuses the first prompt of all rollouts, the model's name
// or a parameter is wrong.
func TestRefusedPrompts(t *testing.T) {
	refuses := func(l *decidertest.Log, rollout string) bool {
		l.Happen(events.RolloutFailedType, rollout, events.RolloutFailed{Stage: events.StageGenerator,
			Class: events.ClassRefused, Message: "400 Bad Request"})
		return true
	}
	turn := events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c", Name: "grep"}}}
	for name, c := range map[string]struct {
		change   func(*runfile.RunConfig)
		answered int // every so many rollouts; 0 is none
		pauses   bool
	}{
		"five of six": {nil, 6, false},
		"all":         {nil, 0, true},
	} {
		p := newPlays(t, c.change)
		paused := p.until(60, func(l *decidertest.Log, i int, rollout string) bool {
			if c.answered > 0 && i%c.answered == 0 {
				return scores(l, rollout, turn)
			}
			return refuses(l, rollout)
		})
		if paused != c.pauses || paused &&
			(p.paused.Class != events.ClassEndpoint ||
				!strings.Contains(p.paused.Reason, "refused the first prompt of 6 rollouts in a row")) {
			t.Errorf("%s: paused %t: %+v after %d", name, paused, p.paused, p.ended)
		}
	}
}

// TestCircuitBreaker: most rollouts fail while turns between them are answered. It opens within the
// window, at whatever stage, and what fails now and then does not open it.
func TestCircuitBreaker(t *testing.T) {
	stages := []string{events.StageGenerator, events.StageTools, events.StageScorer}
	for name, c := range map[string]struct {
		change func(*runfile.RunConfig)
		fails  func(i int) (stage, class string)
		within int // rollouts; 0: never
		class  string
		says   string
	}{
		"170 of 174 at the endpoint": {nil, func(i int) (string, string) {
			if i%43 == 0 {
				return "", ""
			}
			return events.StageGenerator, events.ClassEndpoint
		}, 8, events.ClassEndpoint, "failed at the stage generator"},
		"every second one": {nil, func(i int) (string, string) {
			if i%2 == 0 {
				return "", ""
			}
			return events.StageGenerator, events.ClassEndpoint
		}, 12, events.ClassEndpoint, "6 of the last 12 rollouts"},
		"two of three in the sandbox": {nil, func(i int) (string, string) {
			if i%3 == 0 {
				return "", ""
			}
			return events.StageTools, events.ClassSandbox
		}, 12, events.ClassSandbox, "failed at the stage tools"},
		"two of three in the environment": {nil, func(i int) (string, string) {
			if i%3 == 0 {
				return "", ""
			}
			return events.StageEnvironment, events.ClassWorker
		}, 12, events.ClassWorker, "failed at the stage environment"},
		"all, at changing stages": {nil, func(i int) (string, string) { return stages[i%3], events.ClassInternal }, 12,
			events.ClassInternal, "generator 3, scorer 3, tools 3"},
		"one of three": {nil, func(i int) (string, string) {
			if i%3 > 0 {
				return "", ""
			}
			return events.StageGenerator, events.ClassEndpoint
		}, 0, "", ""},
		"all of them were cancelled": {nil, func(int) (string, string) {
			return events.StageSampler,
				events.ClassCancelled
		}, 0, "", ""},
		"a wider window": {func(c *runfile.RunConfig) { c.Limits.FailureWindow = 12 }, func(i int) (string, string) {
			if i%4 > 0 {
				return "", ""
			}
			return events.StageScorer, events.ClassVerifier
		}, 24, events.ClassVerifier, "6 of the last 21 rollouts"},
		"a window that is too short": {func(c *runfile.RunConfig) {
			c.Limits.FailureWindow, c.Limits.HopelessGroups = 1,
				5
		}, func(int) (string, string) {
			return events.StageScorer, events.ClassVerifier
		}, 10, events.ClassVerifier, "of the last"},
		"an evaluation at the endpoint": {func(c *runfile.RunConfig) { c.Epochs, c.Feeds = 100, nil },
			func(i int) (string, string) {
				if i%2 == 0 {
					return "", ""
				}
				return events.StageGenerator, events.ClassEndpoint
			}, 12, events.ClassEndpoint, "failed at the stage generator"},
		"an evaluation in the sandbox": {func(c *runfile.RunConfig) { c.Epochs, c.Feeds = 100, nil },
			func(int) (string, string) { return events.StageTools, events.ClassSandbox }, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(cfg *runfile.RunConfig) {
				if c.change != nil {
					c.change(cfg)
				}
			}
			p := newPlays(t, change)
			end := func(l *decidertest.Log, i int, rollout string) bool {
				if stage, class := c.fails(i); stage != "" {
					return fails(l, rollout, stage, class)
				}
				return scores(l, rollout, events.TurnSampled{})
			}
			paused := p.until(60, end)
			if paused != (c.within > 0) || paused && p.ended > c.within {
				t.Fatalf("paused %v after %d rollouts, want within %d", paused, p.ended, c.within)
			}
			if !paused {
				return
			}
			if p.paused.Class != c.class || !strings.Contains(p.paused.Reason, c.says) ||
				!strings.Contains(p.paused.Reason, "connection reset") || len(p.paused.Reason) > 1000 {
				t.Errorf("paused by %q: %s", p.paused.Class, p.paused.Reason)
			}
			if got := decidertest.Names(replayed(t, p.Log, config(change)).Decide()); len(got) != 0 {
				t.Errorf("a new process decides %v", got)
			}
			// Resumed, it has a whole window again.
			p.Happen(events.RunResumedType, testRun, events.RunResumed{})
			p.paused = nil
			p.settle()
			if p.paused != nil {
				t.Errorf("resumed, it is paused at once: %s", p.paused.Reason)
			}
		})
	}
}

// TestOutsidersOpenNoCircuit: their failures, and what they sample, are their own.
func TestOutsidersOpenNoCircuit(t *testing.T) {
	p := newPlays(t, nil)
	for i := range 40 {
		id := fmt.Sprintf("x1-%d", i)
		if i%2 == 0 {
			fails(p.Log, id, events.StageGenerator, events.ClassEndpoint)
		} else {
			p.Happen(events.TurnSampledType, id, events.TurnSampled{TextOnly: true, Lacks: []string{events.LackIDs}})
		}
	}
	p.settle()
	if p.paused != nil {
		t.Errorf("paused: %s", p.paused.Reason)
	}
}

// TestLongEpisodes: rollouts that run into their deadline with turns answered and tools run were
// nobody's failure, and burnt for ever.
func TestLongEpisodes(t *testing.T) {
	p := newPlays(t, nil)
	for _, id := range p.waiting {
		p.Happen(events.TurnSampledType, id, events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c", Name: "grep"}}})
	}
	p.Now = p.Now.Add(time.Hour)
	p.settle()
	if p.paused == nil || p.paused.Class != events.ClassDeadline ||
		!strings.Contains(p.paused.Reason, "limits.timeout") {
		t.Errorf("%+v", p.paused)
	}
}

// TestLongEpisodesOfWhom: a limits.timeout that is too short is told from a
// stage that brings nothing on.
func TestLongEpisodesOfWhom(t *testing.T) {
	for minutes, want := range map[float64]string{9: "limits.timeout is too short",
		1: "the stage tools has not brought it on for 10m0s before its episode was over: no slot came free there, or it hangs"} {
		p := newPlays(t, nil)
		for _, id := range p.waiting {
			p.Happen(events.TurnSampledType, id, events.TurnSampled{LatencyMS: minutes * 60_000,
				ToolCalls: []events.ToolCall{{ID: "c", Name: "grep"}}})
		}
		p.Now = p.Now.Add(time.Hour)
		p.settle()
		if p.paused == nil || !strings.Contains(p.paused.Reason, want) {
			t.Errorf("%g of 10 min used: %+v, without %q", minutes, p.paused, want)
		}
	}
}

// TestServerWithoutTokens: the run is paused after the first two groups' rollouts that cannot be
// trained on, and says what the server lacks, though every rollout is scored.
func TestServerWithoutTokens(t *testing.T) {
	called := []events.ToolCall{{ID: "c", Name: "grep"}}
	without := events.TurnSampled{TextOnly: true, Lacks: []string{events.LackPromptIDs, events.LackIDs},
		ToolCalls: called}
	good := events.TurnSampled{ToolCalls: called}
	for name, c := range map[string]struct {
		change func(*runfile.RunConfig)
		turn   func(i int) events.TurnSampled
		within int
		says   string
	}{
		"always": {nil, func(int) events.TurnSampled { return without }, 4,
			"lacks: prompt_token_ids, token_ids."},
		"one of two servers": {nil, func(i int) events.TurnSampled {
			return []events.TurnSampled{good,
				without}[i%2]
		}, 8, "4 of the last 8 rollouts"},
		"seldom": {nil, func(i int) events.TurnSampled {
			return []events.TurnSampled{good, good,
				good, without}[i%4]
		}, 0, ""},
		"an older server says less": {nil, func(int) events.TurnSampled { return events.TurnSampled{TextOnly: true} },
			4, "it does not say what"},
		"calls left in the text": {nil,
			func(int) events.TurnSampled { return events.TurnSampled{Lacks: []string{events.LackTools}} },
			4, "parsed_tool_calls"},
		"calls left in what is masked": {nil, func(int) events.TurnSampled {
			return events.TurnSampled{Lacks: []string{events.LackTools},
				Conversation: &events.Conversation{Rule: "titles", Masked: true}}
		}, 0, ""},
		"one call written wrongly": {nil, func(i int) events.TurnSampled {
			return []events.TurnSampled{good, {Lacks: []string{events.LackTools}}}[min(i, 1)]
		}, 0, ""},
		"switched off": {func(c *runfile.RunConfig) { c.Limits.UntrainableGroups = 0 },
			func(int) events.TurnSampled { return without }, 0, ""},
		"an evaluation needs none": {func(c *runfile.RunConfig) { c.Epochs, c.Feeds = 100, nil },
			func(int) events.TurnSampled { return without }, 0, ""},
		"no breaker": {noBreaker, func(int) events.TurnSampled { return without }, 0, ""},
		"no version": {func(c *runfile.RunConfig) { c.Staleness.RequireVersions = true }, func(int) events.TurnSampled {
			return events.TurnSampled{ToolCalls: called, PolicyVersion: runfile.UnknownVersion}
		}, 4, "lacks: weight_versions."},
		"no version, and none needed": {nil, func(int) events.TurnSampled {
			return events.TurnSampled{ToolCalls: called, PolicyVersion: runfile.UnknownVersion}
		}, 0, ""},
		"known versions": {func(c *runfile.RunConfig) { c.Staleness.RequireVersions = true },
			func(int) events.TurnSampled { return good }, 0, ""},
		"the second turn lacks them": {nil, func(int) events.TurnSampled {
			return events.TurnSampled{Turn: 1, TextOnly: true, Lacks: []string{events.LackLogprobs}}
		}, 4, "logprobs"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlays(t, c.change)
			paused := p.until(40, func(l *decidertest.Log, i int,
				rollout string) bool {
				return scores(l, rollout, c.turn(i))
			})
			if paused != (c.within > 0) || paused && p.ended > c.within {
				t.Fatalf("paused %v after %d rollouts, want within %d: %+v", paused, p.ended, c.within, p.paused)
			}
			if paused && (p.paused.Class != events.PauseUntrainable || !strings.Contains(p.paused.Reason, c.says) ||
				!strings.Contains(p.paused.Reason, "rondo doctor --endpoint")) {
				t.Errorf("paused by %q: %s", p.paused.Class, p.paused.Reason)
			}
		})
	}
}

// TestNoSignal: groups whose rewards are all equal are no fault of the server's. They have a window
// of their own, which is much longer, and a reason of their own.
func TestNoSignal(t *testing.T) {
	const size = 64
	for name, c := range map[string]struct {
		change func(*runfile.RunConfig)
		filter func(group int) string // "" is batched
		groups int                    // after which it is paused; 0: never
		says   []string
	}{
		"zero variance": {nil, func(int) string { return "zero_variance" }, size,
			[]string{"0 of the last 64 groups were batched", "zero_variance 64", "too easy or too hard"}},
		"hardly any batched": {nil, func(n int) string { return []string{"", "zero_variance"}[min(n%32, 1)] }, size,
			[]string{"2 of the last 64 groups"}},
		"one of ten": {nil, func(n int) string { return []string{"", "zero_variance"}[min(n%10, 1)] }, 0, nil},
		"masked by filters": {nil, func(int) string { return "untrainable" }, size,
			[]string{"filters mask every rollout"}},
		"an unknown filter": {nil, func(int) string { return "of another version" }, size, []string{"other 64"}},
		"of another feed":   {nil, func(int) string { return "" }, 0, nil},
		"shorter": {func(c *runfile.RunConfig) { c.Limits.NoSignalGroups = 10 },
			func(int) string { return "pass_rate" }, 10, []string{"filters.pass_rate"}},
		"switched off": {func(c *runfile.RunConfig) { c.Limits.NoSignalGroups = 0 },
			func(int) string { return "zero_variance" }, 0, nil},
		"no breaker": {noBreaker, func(int) string { return "zero_variance" }, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlays(t, c.change)
			groups, version := 0, int64(0)
			for p.paused == nil && groups < 150 && len(p.waiting) > 1 {
				id := p.waiting[0]
				group := events.GroupOf(id)
				for _, member := range p.waiting[:2] {
					scores(p.Log, member, events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c", Name: "grep"}}})
				}
				p.waiting = p.waiting[2:]
				completed(p.Log, group, false, false)
				filter := c.filter(groups)
				groups++
				p.Happen(events.GroupDroppedType, group,
					events.GroupDropped{Feed: "second", Reason: events.DropFiltered, Filter: "zero_variance"})
				if filter == "" {
					version++
					ready(p.Log, "trainer", version, group)
					published(p.Log, testRun, version, version)
				} else {
					p.Happen(events.GroupDroppedType, group,
						events.GroupDropped{Feed: "trainer", Reason: events.DropFiltered, Filter: filter})
				}
				p.settle()
			}
			if paused := p.paused != nil; paused != (c.groups > 0) || paused && groups != c.groups {
				t.Fatalf("paused %v after %d groups, want after %d: %+v", paused, groups, c.groups, p.paused)
			}
			if p.paused == nil {
				return
			}
			if p.paused.Class != events.PauseNoSignal ||
				slices.ContainsFunc(c.says, func(part string) bool {
					return !strings.Contains(p.paused.Reason,
						part)
				}) {
				t.Errorf("paused by %q: %s", p.paused.Class, p.paused.Reason)
			}
		})
	}
}
