package trajectories

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestDiff: the lines that stay and go are the old text, those that stay and come the new one.
func TestDiff(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	side := func() string {
		var lines []string
		for range random.IntN(9) {
			lines = append(lines, string("abc"[random.IntN(3)]))
		}
		return strings.Join(lines, "\n")
	}
	for range 3000 {
		before, after := side(), side()
		var old, new []string
		for _, r := range DiffRows(before, after) {
			mark, text := r[0].Text[:2], r[0].Text[2:]
			if mark != "+ " {
				old = append(old, text)
			}
			if mark != "- " {
				new = append(new, text)
			}
		}
		if strings.Join(old, "\n") != before || strings.Join(new, "\n") != after {
			t.Fatalf("%q to %q: %v", before, after, DiffRows(before, after))
		}
	}
	const many = 5000
	text := strings.Repeat("x\n", many)
	if rows := DiffRows(text, strings.ReplaceAll(text, "x", "y")); len(rows) != 2*many {
		t.Errorf("%d rows", len(rows))
	}
	if rows := DiffRows("a\nb\nc", "a\nx\nc"); len(rows) != 4 {
		t.Errorf("it does not find the shortest difference: %v", rows)
	}
}

// evil would clear the screen, set the title, and turn the direction of writing.
const evil = "\x1b[2J\x1b]0;x\x07\u202e\u009b1m\r\b"

// TestHostileRollout: whatever a rollout holds, a terminal is told nothing by it.
func TestHostileRollout(t *testing.T) {
	arguments, _ := json.Marshal(map[string]string{"file_path" + evil: evil, "old_string": evil + "\nb",
		"new_string": evil + "\nc", "path": evil, "command": evil, "patch": "+" + evil, "contents": evil,
		"long": strings.Repeat(evil, 20)})
	code := 1
	calls, _ := json.Marshal([]events.ToolCall{{ID: "a", Name: evil, Arguments: string(arguments)},
		{ID: "b", Name: evil, Arguments: evil}, {ID: "c"}})
	shown := &shownRollout{&episode.Episode{
		Recorded: true, Spelled: true, Remarks: []string{"annotation: " + evil, "feedback: " + evil},
		Retried: []events.RolloutRetried{{Stage: evil, Class: evil, Message: evil}},
		Dropped: []events.GroupDropped{{Feed: evil, Filter: evil}},
		Batches: []episode.InBatch{{Feed: evil, Step: 1}, {Feed: evil, Step: 1, Masked: evil}},
		Rollout: events.Rollout{
			Finished: &events.RolloutFinished{Masked: map[string]int{evil: 1}},
			Failed:   &events.RolloutFailed{Stage: evil, Class: evil, Message: evil},
			Scored:   &events.RolloutScored{Components: map[string]float64{evil: 1}},
			Tools: events.ToolAnswers{{Results: []events.ToolResult{{CallID: "a", ExitCode: &code}},
				Network: &netaccess.Use{
					Requests: 9, Refused: 1, Fetches: []netaccess.Fetch{{Method: evil, URL: evil, SHA256: evil},
						{Method: evil, URL: evil, Refused: evil}}, All: &storage.Ref{Key: evil},
				}}},
		},
		Trajectory: &storage.Trajectory{Rollout: "g000001-0", Task: evil, StopReason: evil, Messages: []storage.Message{
			{Role: "user" + evil, Name: evil, Content: evil}, {Role: "tool", Name: evil, Content: evil},
			{Role: "assistant", Content: "<think>" + evil + "</think>" + evil, FinishReason: evil,
				ToolCalls: string(calls),
				TokenIDs:  []int32{27, 7, 155, 10, 9}, Logprobs: make([]float32, 5),
				LossMask: []bool{true, true, true, true, false}},
			{Role: "tool", ToolCallID: "a", Name: evil, Content: evil},
			{Role: "tool", ToolCallID: "z", Name: evil, Content: evil},
			{Role: "prompt", Segment: 1}, {Role: "assistant", ToolCalls: "[" + evil, Turn: 1, Segment: 1},
		}},
	}}
	for _, width := range []int{0, 30, 200} {
		for _, color := range []bool{false, true} {
			for _, failed := range []bool{false, true} {
				copied := *shown.Episode
				if !failed {
					copied.Rollout.Failed = nil
				}
				var out strings.Builder
				if err := (&view{&app.Screen{W: &out, Color: color, Width: width}}).rollout(&shownRollout{&copied},
					showOptions{turn: -1, full: color, logprobs: true}); err != nil {
					t.Fatal(err)
				}
				text := out.String()
				if color {
					text = ownColours.ReplaceAllString(text, "")
				}
				harmless(t, text, "\n")
			}
		}
	}
}

func TestShow(t *testing.T) {
	r := clitest.NewRecorded(t)
	_, ids := r.Group(1, "fix-a", 3, 0)
	r.Score(ids[0], "fix-a", 0, 0.5)
	r.State(events.RolloutAnnotatedType, ids[0], "a", events.RolloutAnnotated{Text: "look at this"})
	r.State(events.RolloutHintedType, ids[0], "judge",
		events.RolloutHinted{By: "judge", Hints: []events.Hint{{Start: 2, Length: 3,
			Text: "Look at the\ntests" + evil}}})
	r.State(events.RolloutHintedType, ids[0], "person", events.RolloutHinted{By: "person", Hints: []events.Hint{}})
	r.State(events.FeedbackRecordedType, ids[0], "f", events.FeedbackRecorded{Signal: events.SignalReject, Text: "no"})
	r.State(events.GroupDroppedType, "g000001", "trainer",
		events.GroupDropped{Feed: "trainer", Reason: events.DropStale, Staleness: 3})
	r.State(events.GroupCompletedType, "g000001", "0",
		events.GroupCompleted{Task: "fix-a", Members: []events.Member{{Rollout: ids[0], Reward: 0.5, Advantage: 0.25}}})
	r.State(events.GroupDroppedType, "g000001", "shadow",
		events.GroupDropped{Feed: "shadow", Reason: events.DropFiltered, Filter: "void"})
	r.State(events.BatchReadyType, "shadow", "4", events.BatchReady{Step: 4, Groups: []string{"g000009"},
		Rollouts: []string{"g000009-0"}})
	r.State(events.BatchReadyType, "shadow", "5", events.BatchReady{Step: 5, Groups: []string{"g000001"},
		Rollouts: ids[:1]})
	r.State(events.BatchReadyType, "sft", "2", events.BatchReady{Step: 2, Groups: []string{"g000001"},
		Masked: map[string]string{ids[0]: "overlong"}})
	r.State(events.RolloutRetriedType, ids[1], "1", events.RolloutRetried{Stage: events.StageGenerator,
		Class: events.ClassEndpoint, Message: "connection refused", Try: 1})
	edit := `{"file_path":"a.go","old_string":"x := 1\ny","new_string":"x := 2\ny"}`
	r.State(events.TurnSampledType, ids[1], "0", events.TurnSampled{
		Content: "<think>I wonder.</think>Both.", ToolCalls: []events.ToolCall{{ID: "c0", Name: "search_replace",
			Arguments: edit}, {ID: "c1", Name: "run_terminal_cmd", Arguments: `{"command":"go test"}`}},
		TokenIDs: []int32{65, 66}, Logprobs: []float32{0, -1}, FinishReason: "tool_calls",
	})
	code := 2
	r.State(events.ToolsCompletedType, ids[1], "0", events.ToolsCompleted{Results: []events.ToolResult{
		{CallID: "c0", Name: "search_replace", Content: "Edited."},
		{CallID: "c1", Name: "run_terminal_cmd", Content: longText(40), ExitCode: &code, DurationMS: 1500}}})
	show := func(args ...string) string {
		t.Helper()
		output, err := clitest.Run(t, New, append([]string{"trajectories", "show", "first", "--dir", r.Dir},
			args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	contains(t, show(ids[0]), "scored (finished)", "0.5", "annotation: look at this",
		"hint of judge about tokens 2 to 4 of sample 0: Look at the", "person found nothing to give a hint about",
		"feedback: reject, reward 0: no", "feed trainer does not train on its group: stale, 3 versions old",
		"trained   feed shadow, step 5\n", "masked    feed sft, step 2: overlong\n",
		"advantage +0.25", "── turn 0", "Done.")
	if output := show(ids[0]); strings.Contains(output, "void") || strings.Contains(output, "step 4") {
		t.Errorf("neither a drop that is void nor another group's batch counts:\n%s", output)
	}
	contains(t, show(ids[1]), "in flight", "generator, endpoint: connection refused", "Do fix-a.", "┊ I wonder.",
		"\nBoth.\n", "▸ search_replace a.go\n│ - x := 1\n│ + x := 2\n│   y\n",
		"│ $ go test\n│ ✗ exit code 2  1.5 s\n│ line 1\n", "26 lines more (--full)")
	contains(t, show(ids[1], "--full"), "line 20\n")
	contains(t, show(ids[1], "--width", "130"), "▸ search_replace a.go", " ┃ ▸ run_terminal_cmd\n")
	contains(t, show(ids[1], "--logprobs"), "2 tokens sampled; log-probability -1 in all", "A B(0.368)")
	contains(t, show(ids[1], "--color", "always"), "\x1b[31m- x := 1\x1b[0m")
	if output := show(ids[2]); !strings.Contains(output, "0 turns") {
		t.Errorf("a rollout that has only begun:\n%s", output)
	}
	r.State(events.RolloutFailedType, ids[2], "0", events.RolloutFailed{Stage: events.StageTools,
		Class: events.ClassSandbox, Message: "no room"})
	contains(t, show(ids[2]), "failed: tools, sandbox: no room")

	var printed, want storage.Trajectory
	data, err := storage.GetBlob(t.Context(), r.Log.Store(),
		servicetest.WaitData[events.RolloutFinished](t, r.Log, "first", events.RolloutFinishedType, ids[0]).Trajectory)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := storage.DecodeTrajectory(data)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(decoded)
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(show(ids[0], "--json")), &printed); err != nil ||
		!reflect.DeepEqual(printed, want) {
		t.Errorf("%v: %+v, want %+v", err, printed, want)
	}
	for _, c := range []struct{ args, want string }{{"g000009-0", "no rollout g000009-0"}, {"a.b", "no rollout a.b"},
		{ids[0] + " --turn 7", "1 turns"}, {ids[0] + " --color pink", "pink"}} {
		if output, err := clitest.Run(t, New, append([]string{"trajectories", "show", "first", "--dir", r.Dir},
			strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, output)
		}
	}
	// The same when nothing but the archive is left.
	before := show(ids[0])
	servicetest.CloseRun(t, r.Log, "first")
	if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Streams.DeleteRun(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if after := show(ids[0]); after != before {
		t.Errorf("from the archive:\n%s\nbefore:\n%s", after, before)
	}
}

func longText(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

func contains(t *testing.T, output string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("%q is not in\n%s", part, output)
		}
	}
}

// ownColours are the sequences that the screen itself writes.
var ownColours = regexp.MustCompile(`\x1b\[[0-9]{1,2}m`)

// harmless checks that a terminal would print a text as it is.
func harmless(t *testing.T, text, allowed string) {
	t.Helper()
	for _, r := range text {
		if !unicode.IsPrint(r) && !strings.ContainsRune(allowed, r) || unicode.Is(unicode.Cf, r) {
			t.Fatalf("%q in %.200q", r, text)
		}
	}
	if !utf8.ValidString(text) {
		t.Fatalf("%.200q is not UTF-8", text)
	}
}

// TestNetworkOfATurn shows the first requests, every refusal, and where the rest is.
func TestNetworkOfATurn(t *testing.T) {
	use := &netaccess.Use{Requests: 30, Refused: 1, Received: 3 << 20, Sent: 10, All: &storage.Ref{Key: "blobs/x"}}
	for range networkHead + 2 {
		use.Fetches = append(use.Fetches, netaccess.Fetch{Method: "GET", URL: "/pypi/simple/a/", Status: 200,
			Bytes: 2048, SHA256: strings.Repeat("a", 64), Kept: true})
	}
	use.Fetches = append(use.Fetches, netaccess.Fetch{Method: "CONNECT", URL: "evil.example.com:443",
		Refused: "not allowed"})
	var text strings.Builder
	for _, row := range networkRows(use, false) {
		for _, span := range row {
			text.WriteString(span.Text)
		}
		text.WriteString("\n")
	}
	want := "network: 30 requests, 3.0 MiB received, 10 B sent, 1 refused\n" +
		strings.Repeat("  ↓ GET /pypi/simple/a/  200 · 2.0 KiB · aaaaaaaaaaa… · kept\n", networkHead) +
		"  ✗ CONNECT evil.example.com:443  not allowed\n  and 25 more: blobs/x\n"
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
	if networkRows(nil, true) != nil {
		t.Error("a turn without a network shows one")
	}
}

// TestSampledWith: versions that nobody reported are named so, and not taken
// for those of the dispatch.
func TestSampledWith(t *testing.T) {
	sampled := func(version int64, spans ...storage.VersionSegment) storage.Message {
		return storage.Message{Role: "assistant", PolicyVersion: version, Versions: spans, TokenIDs: []int32{1, 2, 3},
			LossMask: []bool{true, true, true}}
	}
	for want, messages := range map[string][]storage.Message{
		"an unknown version": {{Role: "user", TokenIDs: []int32{1}, LossMask: []bool{false}},
			sampled(-1)},
		"version 4":                          {sampled(4), sampled(4)},
		"versions 4 to 6":                    {sampled(6), sampled(4), sampled(5)},
		"versions 4 to 6 and an unknown one": {sampled(6), sampled(-1), sampled(4)},
		"version 5 and an unknown one": {sampled(-1, storage.VersionSegment{Start: 0, Length: 1, Version: -1},
			storage.VersionSegment{Start: 1, Length: 2, Version: 5})},
		// text only
		"version 3 and an unknown one": {{Role: "assistant", PolicyVersion: 3},
			{Role: "assistant", PolicyVersion: -1}},
	} {
		s := &shownRollout{&episode.Episode{Trajectory: &storage.Trajectory{Messages: messages}}}
		if got := s.sampledWith(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s := &shownRollout{&episode.Episode{
		Rollout:    events.Rollout{Finished: &events.RolloutFinished{}},
		Trajectory: &storage.Trajectory{Messages: []storage.Message{sampled(-1)}},
	}}
	var text strings.Builder
	(&view{&app.Screen{W: &text}}).Print(s.header()...)
	contains(t, text.String(), "version 0 at dispatch, sampled with an unknown version\n")
}

// TestColumnsOfATurn: a turn shows what it has beside its tokens, and of how many.
func TestColumnsOfATurn(t *testing.T) {
	m := storage.Message{Columns: []storage.TokenColumn{{Name: "routed_experts", Length: 3},
		{Name: "routed_experts", Start: 4, Length: 2}, {Name: "top_logprobs", Length: 7}}}
	if text := columnsOf(m); text != " · routed_experts of 5 · top_logprobs of 7" ||
		columnsOf(storage.Message{}) != "" {
		t.Errorf("shown as %q", text)
	}
}
