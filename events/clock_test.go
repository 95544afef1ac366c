package events

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// TestToolTimeLeft counts calls that ran at the same time once, and nothing of a fork's origin.
func TestToolTimeLeft(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	call := func(after, took time.Duration) ToolResult {
		return ToolResult{StartedAt: at.Add(after), DurationMS: float64(took / time.Millisecond)}
	}
	r := Rollout{
		Turns: []TurnSampled{{Turn: 0}, {Turn: 1}, {Turn: 2}},
		Tools: ToolAnswers{
			{Turn: 0, Results: []ToolResult{call(0, time.Hour)}},
			{Turn: 1, Results: []ToolResult{call(0, 20*time.Second), call(time.Second, 30*time.Second)}},
		},
		Copied: 1,
	}
	if left := r.ToolTimeLeft(runfile.Limits{Timeout: runfile.Duration(2 * time.Minute)}); left != 29*time.Second {
		t.Errorf("%v are left of a minute, of which 31 s are used", left)
	}
	r.Copied = 0
	if left := r.ToolTimeLeft(runfile.Limits{Timeout: runfile.Duration(2 * time.Minute)}); left > 0 {
		t.Errorf("%v are left behind an hour of tools", left)
	}
}

// TestToolTimeOfFold: a folded rollout has the same time left as one that is put together.
func TestToolTimeOfFold(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := Rollout{}
	r.Begin(RolloutCopied{Turns: []TurnSampled{{Turn: 0}},
		Tools: []ToolsCompleted{{Turn: 0, Results: []ToolResult{{StartedAt: at, DurationMS: 3.6e6}}}}})
	for turn := 1; turn < 4; turn++ {
		sampled, err := New("r", TurnSampledType, "g000001-0", Ordinal(turn), TurnSampled{Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		completed, err := New("r", ToolsCompletedType, "g000001-0", Ordinal(turn),
			ToolsCompleted{Turn: turn, Results: []ToolResult{{StartedAt: at, DurationMS: 5000}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Extend([]Event{sampled, completed}); err != nil {
			t.Fatal(err)
		}
		plain := Rollout{Turns: r.Turns, Tools: r.Tools, Copied: r.Copied}
		limits := runfile.Limits{Timeout: runfile.Duration(2 * time.Minute)}
		if got, want := r.ToolTimeLeft(limits), time.Minute-time.Duration(turn)*5*time.Second; got != want ||
			got != plain.ToolTimeLeft(limits) {
			t.Errorf("turn %d: %v left, not %v (%v)", turn, got, want, plain.ToolTimeLeft(limits))
		}
	}
}

// TestRunningTime: gaps between calls are not the tools', calls beside each other count once, and
// one from the cache ran nothing.
func TestRunningTime(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	call := func(after, took time.Duration, cache string) ToolResult {
		return ToolResult{StartedAt: at.Add(after), DurationMS: float64(took / time.Millisecond),
			Cache: cache, OriginalMS: 5000}
	}
	for name, c := range map[string]struct {
		results []ToolResult
		want    time.Duration
	}{
		"none": {nil, 0},
		"after each other": {[]ToolResult{call(0, time.Second, ""), call(time.Second, time.Second, toolset.CacheMiss)},
			2 * time.Second},
		"with a gap": {[]ToolResult{call(0, time.Second, ""), call(time.Hour, time.Second, toolset.CacheBypass)},
			2 * time.Second},
		"beside": {[]ToolResult{call(time.Second, 3*time.Second, ""), call(0, 2*time.Second, "")},
			4 * time.Second},
		"one in another": {[]ToolResult{call(0, 9*time.Second, ""), call(time.Second, time.Second, ""),
			call(5*time.Second, time.Second, "")}, 9 * time.Second},
		"from the cache": {[]ToolResult{call(0, time.Minute, toolset.CacheHit),
			call(time.Second, time.Second, toolset.CacheMiss)}, time.Second},
		"below 0":      {[]ToolResult{call(0, -time.Second, "")}, 0},
		"beyond a day": {[]ToolResult{{StartedAt: at, DurationMS: 1e300}}, 24 * time.Hour},
	} {
		if got := (ToolsCompleted{Results: c.results}).RunningTime(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestDue: waiting that is over costs a rollout nothing, what its agent has used does, and a
// scorer has all of the time.
func TestDue(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limits := runfile.Limits{Timeout: runfile.Duration(10 * time.Minute)}
	calls := []ToolCall{{ID: "c"}}
	ran := func(minutes float64) []ToolResult { return []ToolResult{{DurationMS: minutes * 60_000}} }
	type link struct {
		at   int // minutes
		t    Type
		data any
	}
	for name, c := range map[string]struct {
		id    string
		links []link
		want  int // minutes
	}{
		"started":           {"g000001-0", nil, 10},
		"a try that failed": {"g000001-0", []link{{9, RolloutRetriedType, RolloutRetried{}}}, 10},
		"a fork that was copied": {"g000001-0", []link{{9, RolloutCopiedType,
			RolloutCopied{Turns: []TurnSampled{{LatencyMS: 9 * 60_000}}}}}, 10},
		"a slot came late": {"g000001-0", []link{{9, TurnSampledType,
			TurnSampled{LatencyMS: 60_000, ToolCalls: calls}}}, 18},
		"a runner came late": {"g000001-0", []link{{1, TurnSampledType,
			TurnSampled{LatencyMS: 60_000, ToolCalls: calls}},
			{10, ToolsCompletedType, ToolsCompleted{Results: ran(2)}}}, 17},
		"its own time":           {"g000001-0", []link{{9, TurnSampledType, TurnSampled{LatencyMS: 9 * 60_000}}}, 10},
		"more than its own time": {"g000001-0", []link{{15, TurnSampledType, TurnSampled{LatencyMS: 15 * 60_000}}}, 15},
		"to be scored": {"g000001-0", []link{{9, TurnSampledType, TurnSampled{LatencyMS: 9 * 60_000}},
			{9, RolloutFinishedType, RolloutFinished{}}}, 19},
		"a step to be scored": {"g000001-0", []link{{9, TurnSampledType, TurnSampled{LatencyMS: 9 * 60_000}},
			{9, StepFinishedType, StepFinished{Turns: 1}}}, 19},
		"an outsider's": {"xa-0", []link{{9, TurnSampledType, TurnSampled{LatencyMS: 60_000}}}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			var links []Event
			for _, l := range append([]link{{0, RolloutStartedType,
				RolloutStarted{Deadline: begin.Add(10 * time.Minute)}}}, c.links...) {
				e, err := New("r", l.t, c.id, Ordinal(len(links)), l.data)
				if err != nil {
					t.Fatal(err)
				}
				e.Time = begin.Add(time.Duration(l.at) * time.Minute)
				links = append(links, e)
			}
			r, err := FoldRollout(links)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Due(limits).Sub(begin); got != time.Duration(c.want)*time.Minute {
				t.Errorf("due after %s, want %d min", got, c.want)
			}
		})
	}
}

// TestDueInAnOutage: the time of an outage costs a rollout nothing, wherever it waits; of an
// outsider's time only what it waits for the plane's stages.
func TestDueInAnOutage(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
	limits := runfile.Limits{Timeout: runfile.Duration(10 * time.Minute)}
	for name, c := range map[string]struct {
		id, stage    string
		clock        Clock
		since, until int
		deadline     time.Time
		want         time.Time
	}{
		"before its first turn": {"g000001-0", StageGenerator, Clock{Began: begin}, 5, 30,
			minute(10), minute(35)},
		"from before it was started": {"g000001-0", StageGenerator, Clock{Began: begin}, -5, 30,
			minute(10), minute(40)},
		"behind some turns": {"g000001-0", StageGenerator, Clock{Used: 4 * time.Minute, Moved: minute(5)},
			8, 30, minute(10), minute(33)},
		"to be scored": {"g000001-0", StageScorer, Clock{Used: 4 * time.Minute, Moved: minute(5)}, 0,
			30, minute(10), minute(40)},
		"one that is over": {"g000001-0", StageTools, Clock{Used: 4 * time.Minute, Moved: minute(50)}, 8,
			30, minute(10), minute(56)},
		"one before it was started": {"g000001-0", StageGenerator, Clock{Began: begin}, -5, -1,
			minute(10), minute(10)},
		"one of a single park": {"g000001-0", StageTools, Clock{Moved: begin}, 9, 10,
			minute(10), minute(11)},
		"an outsider at work": {"xa-0", StageGenerator, Clock{}, 5, 30, minute(10), minute(10)},
		"an outsider's verdict": {"xa-0", StageScorer, Clock{Moved: minute(5)}, 8, 30,
			minute(10), minute(32)},
		"an outsider's second one": {"xa-0", StageScorer, Clock{Moved: minute(5), Waited: time.Minute}, 8, 30,
			minute(10), minute(33)},
		"an outsider's, that has no time": {"xa-0", StageScorer, Clock{Moved: minute(5)}, 8, 30,
			time.Time{}, time.Time{}},
	} {
		clock := c.clock
		clock.Wait(c.id, c.stage, Span{minute(c.since), minute(c.until)})
		clock.Wait(c.id, c.stage, Span{minute(c.since), minute(c.until - 1)}) // as another process says
		if got := clock.Due(c.id, c.deadline, c.stage, limits); !got.Equal(c.want) {
			t.Errorf("%s: due after %s, want %s", name, got.Sub(begin), c.want.Sub(begin))
		}
	}
	outsider := Clock{Began: begin}
	outsider.Wait("xa-0", StageTools, Span{minute(3), minute(9)})
	outsider.Move(Event{Type: ToolsCompletedType, Entity: "xa-0", Time: minute(8)}, 0)
	if got := outsider.Due("xa-0", minute(10), StageGenerator, limits); !got.Equal(minute(15)) {
		t.Errorf("an outsider whose tools waited for 5 min is due after %s", got.Sub(begin))
	}
}

// TestDueBehindStatements: a rollout that does not go on is due later by as long as its stage
// waited since it went on last, whatever statements say so and in whatever order. One whose stage
// waits for half of the time ends.
func TestDueBehindStatements(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	second := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }
	limits := runfile.Limits{Timeout: runfile.Duration(30 * time.Minute)}
	const id = "g000001-0"
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 161))
		clock := Clock{Moved: second(600), Used: 10 * time.Minute}
		var excused [3600]bool
		for range rng.IntN(30) {
			since := rng.IntN(3500)
			until := since + rng.IntN(3600-since)
			clock.Wait(id, StageTools, Span{second(since), second(until)})
			for s := max(since, 600); s < until; s++ {
				excused[s] = true
			}
		}
		want := 20 * time.Minute
		for _, yes := range excused {
			if yes {
				want += time.Second
			}
		}
		if got := clock.Due(id, second(1), StageTools, limits).Sub(clock.Moved); got != want {
			t.Fatalf("seed %d: due %s behind its last move, want %s; %v", seed, got, want, clock.Waits)
		}
	}
	clock := Clock{Moved: begin}
	for n := 0; clock.Due(id, begin, StageTools, limits).After(second(n)); n += 120 {
		if clock.Wait(id, StageTools, Span{second(n), second(n + 60)}); n > 2*3600 {
			t.Fatal("a rollout that hangs lives as long as its stage waits again and again")
		}
	}
}
