package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestGroupOfAHarness: two members of a group work with tools of their own, are scored by their
// harness, and become a batch.
func TestGroupOfAHarness(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(_ int, a ask) said {
		switch len(a.Messages) {
		case 2:
			// the second one is malformed
			return said{content: "I look.", calls: [][2]string{{"ls", `{"path": "."}`}, {"cat", `{"path": "a`}}}
		case 5:
			return said{calls: [][2]string{{"edit", `{}`}}}
		}
		return said{content: "Done."}
	})
	p := newPlane(t, b.url, nil)
	first := p.start(map[string]any{"group": "one", "size": 2})
	second := p.start(map[string]any{"group": "one"})
	if first.Rollout != "xone-0" || second.Rollout != "xone-1" || second.Size != 2 || first.Model != "small" ||
		first.BaseURL != p.url+"/rollouts/r.xone-0/v1" {
		t.Fatalf("started %+v and %+v", first, second)
	}
	p.post("/rollouts", map[string]any{"run": "r", "task": "theirs", "group": "one"}, http.StatusConflict, nil)
	for i, m := range []member{first, second} {
		talk := p.say(m, system("You mend."), user("Mend it."))
		for _, c := range talk[2]["tool_calls"].([]any) {
			talk = append(talk, message{"role": "tool", "tool_call_id": c.(map[string]any)["id"], "content": "result"})
		}
		talk = p.say(m, talk...)
		call := talk[5]["tool_calls"].([]any)[0].(map[string]any)
		talk = append(talk, message{"role": "tool", "tool_call_id": call["id"], "content": "ok"})
		talk = p.say(m, talk...)
		if len(talk) != 8 || talk[7]["content"] != "Done." {
			t.Fatalf("the conversation is %v", talk)
		}
		p.finish(m, float64(i))
		p.finish(m, float64(i)) // who lost the answer asks again
	}
	ready := servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	if !slices.Equal(ready.Rollouts, []string{"xone-0", "xone-1"}) {
		t.Errorf("the batch is %+v", ready)
	}
	tr := p.trajectory(second)
	samples := tr.Samples()
	// The malformed call cannot be repeated to the server as it was sampled: its template would not
	// read it. So the second prompt is no exact continuation of the first answer, and another
	// sample begins; the third one extends the second.
	if len(samples) != 2 || len(samples[1].Turns) != 2 {
		t.Fatalf("%d samples: %+v", len(samples), samples)
	}
	last := b.seen()[5]
	want := append(append(promptOf(last), bytesOf("Done.")...), ends)
	if !slices.Equal(samples[1].Tokens, want) {
		t.Errorf("the sample is not what the server was asked and answered:\n%v\n%v", samples[1].Tokens, want)
	}
	roles := ""
	for _, m := range tr.Messages {
		roles += m.Role + " "
	}
	if roles != "system user assistant tool tool prompt assistant tool assistant " {
		t.Errorf("the rows are %s", roles)
	}
	seeds := map[int64]bool{}
	for _, a := range b.seen() {
		seeds[a.Seed] = true
		if a.Model != "small" || a.Temperature != 1 || a.MaxTokens != 4096 || a.Stream {
			t.Errorf("asked %+v", a)
		}
	}
	if len(seeds) != 6 {
		t.Errorf("6 turns had %d seeds", len(seeds))
	}
	p.prove(0)
}

func promptOf(a ask) []int32 {
	var ids []int32
	for _, m := range a.Messages {
		ids = append(ids, template(m)...)
	}
	return append(append(ids, begins), bytesOf("assistant:")...)
}

// TestExactContinuation: turns that extend each other are one sample, and their
// files hold each token once.
func TestExactContinuation(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	talk := []message{system("s")}
	for i := range 5 {
		talk = p.say(m, append(talk, user(fmt.Sprint("question ", i)))...)
	}
	p.finish(m, 1)
	samples := p.trajectory(m).Samples()
	if len(samples) != 1 || len(samples[0].Turns) != 5 {
		t.Fatalf("samples are %+v", samples)
	}
	want := append(append(promptOf(b.seen()[4]), bytesOf(text(4))...), ends)
	if !slices.Equal(samples[0].Tokens, want) {
		t.Errorf("the sample is not the conversation")
	}
	for i, turn := range p.rollout(m).Turns {
		if n := len(turn.Prompt); i > 0 && n != 1 || turn.TextOnly {
			t.Errorf("turn %d states %d messages of its prompt", i, n)
		}
	}
	p.prove(0)
}

// TestTokensForAHarness: a harness that asks for token ids has those of the log, and one that
// begins in a closed run learns that it is closed.
func TestTokensForAHarness(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(map[string]any{"size": 1})
	talk := []message{user("a")}
	for turn := range 2 {
		var got struct {
			Prompt  []int32 `json:"prompt_token_ids"`
			Choices []struct {
				Message  message `json:"message"`
				Tokens   []int32 `json:"token_ids"`
				Logprobs struct {
					Content []struct{ Logprob float32 } `json:"content"`
				} `json:"logprobs"`
			} `json:"choices"`
		}
		p.post(m.chat(), map[string]any{"messages": talk, "return_token_ids": true, "logprobs": true}, http.StatusOK,
			&got)
		said := p.rollout(m).Turns[turn]
		if !slices.Equal(got.Prompt, promptOf(b.seen()[turn])) || !slices.Equal(got.Choices[0].Tokens, said.TokenIDs) ||
			len(said.TokenIDs) == 0 {
			t.Errorf("turn %d has the tokens %v and %v", turn, got.Prompt, got.Choices[0].Tokens)
		}
		for i, entry := range got.Choices[0].Logprobs.Content {
			if entry.Logprob != said.Logprobs[i] {
				t.Errorf("turn %d: log-probability %d is %g, recorded as %g", turn, i, entry.Logprob, said.Logprobs[i])
			}
		}
		talk = append(talk, got.Choices[0].Message, user("b"))
	}
	if plain := p.post(m.chat(), map[string]any{"messages": talk}, http.StatusOK,
		nil); strings.Contains(string(plain.body), "token_ids") {
		t.Errorf("nobody asked for token ids: %s", plain.body)
	}
	p.finish(m, 1)
	servicetest.CloseRun(t, p.log, "r")
	if over := p.post("/rollouts", map[string]any{"run": "r", "task": "theirs"}, http.StatusConflict,
		nil); !strings.Contains(string(over.body), `"run_closed"`) {
		t.Errorf("a closed run answers %s", over.body)
	}
}

// readTurn is a turn as GET /rollouts/{id}/turns has it, with its whole prompt.
type readTurn struct {
	Segment       int       `json:"segment"`
	PromptDelta   []int32   `json:"prompt_delta"`
	TokenIDs      []int32   `json:"token_ids"`
	Logprobs      []float32 `json:"logprobs"`
	TextOnly      bool      `json:"text_only"`
	FinishReason  string    `json:"finish_reason"`
	PolicyVersion int64     `json:"policy_version"`
	prompt        []int32
}

// turns reads the tokens of a rollout's turns from the gateway.
func (p *plane) turns(m member) []readTurn {
	p.t.Helper()
	got, err := p.do(p.t.Context(), http.MethodGet, "/rollouts/"+m.ID+"/turns", nil)
	if err != nil || got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
		p.t.Fatalf("the turns of %s are %+v, %v", m.ID, got, err)
	}
	var answer struct {
		Turns []readTurn `json:"turns"`
	}
	if err := json.Unmarshal(got.body, &answer); err != nil {
		p.t.Fatalf("the turns of %s are %s: %v", m.ID, got.body, err)
	}
	known := map[int][]int32{}
	for i := range answer.Turns {
		at := &answer.Turns[i]
		at.prompt = append(slices.Clip(known[at.Segment]), at.PromptDelta...)
		known[at.Segment] = append(slices.Clip(at.prompt), at.TokenIDs...)
	}
	return answer.Turns
}

// TestBranches: a harness that tries again, forgets, and works on two things at once, of which the
// run masks none, or one.
func TestBranches(t *testing.T) {
	t.Parallel()
	t.Run("all are trained on", func(t *testing.T) { branches(t, "answer 3, answer 5", nil) })
	t.Run("the judge is masked", func(t *testing.T) {
		branches(t, "", []runfile.ConversationRule{{Name: "judges", System: "judge", Train: new(false)}})
	})
}

// branches demands the turns of the judge's sample that are trained on.
func branches(t *testing.T, judge string, rules []runfile.ConversationRule) {
	b := newBackend(t, counts)
	p := newPlane(t, b.url, func(c *runfile.RunConfig) { c.Conversations = rules })
	m := p.start(nil)
	one := p.say(m, system("s"), user("a"))       // turn 0
	_ = p.say(m, append(one, user("b"))...)       // turn 1
	again := p.say(m, append(one, user("b"))...)  // turn 2: the same once more
	other := p.say(m, system("judge"), user("c")) // turn 3: another conversation
	_ = p.say(m, append(again, user("d"))...)     // turn 4 goes on with turn 2
	_ = p.say(m, append(other, user("e"))...)     // turn 5 with turn 3
	edited := slices.Clone(again)
	edited[1] = user("A")
	_ = p.say(m, append(edited, user("f"))...) // turn 6: the history is another one
	p.finish(m, 1)
	type place struct {
		after int // -1: nothing
		new   bool
		added int
	}
	var got []place
	for _, turn := range p.rollout(m).Turns {
		at := place{-1, turn.NewSegment, len(turn.Prompt)}
		if turn.After != nil {
			at.after = *turn.After
		}
		got = append(got, at)
	}
	want := []place{{-1, true, 2}, {0, false, 1}, {0, true, 1}, {-1, true, 2}, {2, false, 1},
		{3, false, 1}, {-1, true, 6}}
	if !slices.Equal(got, want) {
		t.Errorf("turns stand at %+v, want %+v", got, want)
	}
	var turns []string
	for _, s := range p.trajectory(m).Samples() {
		var own []string
		for _, span := range s.Turns {
			own = append(own, sampled(s.Tokens[span.Start:span.Start+span.Length]))
		}
		turns = append(turns, strings.Join(own, ", "))
	}
	if want := []string{"answer 0, answer 1", "answer 2, answer 4", judge, "answer 6"}; !slices.Equal(turns, want) {
		t.Errorf("samples hold %q, want %q", turns, want)
	}
	read := p.turns(m)
	for i, turn := range p.rollout(m).Turns {
		segment := []int{0, 0, 1, 2, 1, 2, 3}[i]
		if got := read[i]; got.Segment != segment || !slices.Equal(got.prompt, promptOf(b.seen()[i])) ||
			!slices.Equal(got.TokenIDs, turn.TokenIDs) || !slices.Equal(got.Logprobs, turn.Logprobs) ||
			got.FinishReason != "stop" || got.PolicyVersion != turn.PolicyVersion {
			t.Errorf("turn %d is read as %+v, want segment %d, and what was asked and sampled", i, got, segment)
		}
	}
	p.prove(0)
}

// TestManyAtOnce: calls of one rollout at the same time are turns one after the other, and
// the intake refuses none.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const n = 12
	all := make(chan struct{})
	b := newBackend(t, func(i int, a ask) said {
		if i == n-1 {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(300 * time.Millisecond): // a server gets as many at once as it has shown that it can take
		case <-a.leave: // the test has failed
		}
		return said{content: text(i)}
	})
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { p.say(m, user(fmt.Sprint("part ", i))) })
	}
	wg.Wait()
	p.finish(m, 1)
	if r := p.rollout(m); len(r.Turns) != n || r.Finished.Samples != n {
		t.Errorf("%d turns, finished as %+v", len(r.Turns), r.Finished)
	}
	p.prove(0)
}

// TestAnotherGatewayGoesOn: a gateway keeps nothing, so that what it has answered
// is there for the next one.
func TestAnotherGatewayGoesOn(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(map[string]any{"group": "g", "member": 1, "size": 2})
	talk := p.say(m, user("a"))
	p.url = p.serve(nil)
	if again := p.start(map[string]any{"group": "g", "member": 1}); again.ID != m.ID {
		t.Errorf("the member is %+v now", again)
	}
	p.say(m, append(talk, user("b"))...)
	p.finish(m, 1)
	if r := p.rollout(m); len(r.Turns) != 2 || r.Finished.Samples != 1 {
		t.Errorf("%d turns, finished as %+v", len(r.Turns), r.Finished)
	}
	p.prove(0)
}

// TestTextOnly: of a server without token ids the text is kept, and nothing is trained on.
func TestTextOnly(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(n int, _ ask) said { return said{content: " " + text(n) + "\n", textOnly: true} })
	p := newPlane(t, b.url, nil)
	m := p.start(map[string]any{"size": 1})
	if read := p.turns(m); len(read) != 0 {
		t.Errorf("a rollout without turns has %+v", read)
	}
	talk := p.say(m, user("a"))
	talk[1]["content"] = strings.TrimSpace(talk[1]["content"].(string)) // as harnesses do
	p.say(m, append(talk, user("b"))...)
	p.finish(m, 1)
	tr := p.trajectory(m)
	if !tr.TextOnly || len(tr.Messages) != 4 || len(tr.Samples()) != 1 {
		t.Errorf("the trajectory is %+v", tr)
	}
	if read := p.turns(m); len(read) != 2 || !read[1].TextOnly || read[1].TokenIDs != nil || read[1].prompt != nil {
		t.Errorf("the turns without tokens are %+v", read)
	}
	p.prove(0)
}

// TestStartedByEvent: a harness that submits rollout.started needs the gateway for its calls alone.
func TestStartedByEvent(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(map[string]any{"group": "both"})
	servicetest.StartRollout(t, p.log, "r", "xboth-1", "theirs")
	m.ID, m.Rollout = "r.xboth-1", "xboth-1"
	p.say(m, user("a"))
	p.finish(m, 0.5)
	if r := p.rollout(m); r.Scored == nil || r.Scored.Reward != 0.5 {
		t.Errorf("the rollout is %+v", r)
	}
}
