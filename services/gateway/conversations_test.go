package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// asks are a system prompt, unless it is "", and what is said behind it: by the user,
// and in turn by the model.
func asks(system string, said ...string) (c talk) {
	if system != "" {
		c = talk{{Role: "system", Content: system}}
	}
	for i, text := range said {
		role := "user"
		if i%2 == 1 {
			role = roleAssistant
		}
		c = append(c, events.PromptMessage{Role: role, Content: text})
	}
	return c
}

// TestConversations: a conversation is judged by its first request, and keeps that. Which one is
// the main one does not hang on which the model answers first, where a rule names the others.
func TestConversations(t *testing.T) {
	masks := func(name, model, system, tree string) runfile.ConversationRule {
		return runfile.ConversationRule{Name: name, Model: model, System: system, Tree: tree, Train: new(false)}
	}
	beside := masks("others", "", "", runfile.TreeBeside)
	title := masks("titles", "", "You name", "")
	sage := masks("sages", "opus", "", "")
	sage.Train = new(true)
	type request struct {
		talk
		model string
		tools string // digest
	}
	begin := request{talk: asks("You mend.", "Mend it.")}
	on := request{talk: asks("You mend.", "Mend it.", "said 0", "Go on.")}
	sub := request{talk: asks("You read.", "Read it.")}
	for name, c := range map[string]struct {
		rules []runfile.ConversationRule
		asked []request
		gone  []int // before the last one
		want  []string
	}{
		"no rules": {nil, []request{begin, sub}, nil, []string{"", ""}},
		"the main one and a helper": {[]runfile.ConversationRule{beside}, []request{begin, sub, on}, nil,
			[]string{"main", "beside others masked", "main"}},
		"a helper goes on": {[]runfile.ConversationRule{beside},
			[]request{begin, sub, {talk: asks("You read.", "Read it.", "said 1", "More.")}}, nil,
			[]string{"main", "beside others masked", "beside others masked"}},
		"with another model": {[]runfile.ConversationRule{masks("small", "haiku", "", "")},
			[]request{begin, {talk: on.talk, model: "haiku"}}, nil, []string{"main", "main"}},
		"begins with another model": {[]runfile.ConversationRule{masks("small", "haiku", "", "")},
			[]request{begin, {talk: sub.talk, model: "haiku"}}, nil, []string{"main", "beside small masked"}},
		"a title comes first": {[]runfile.ConversationRule{title, beside},
			[]request{{talk: asks("You name.", "Mend it.")}, begin,
				{talk: asks("You mend.", "Mend it.", "said 1", "Go on.")}}, nil,
			[]string{"beside titles masked", "main", "main"}},
		"rewritten behind a title": {[]runfile.ConversationRule{title, beside},
			[]request{{talk: asks("You name.", "Mend it.")}, begin, on}, nil,
			[]string{"beside titles masked", "main", "main"}},
		"a title comes second": {[]runfile.ConversationRule{beside},
			[]request{begin, {talk: asks("You name.", "Mend it.")}}, nil, []string{"main", "beside others masked"}},
		"with no tools": {[]runfile.ConversationRule{beside}, []request{{talk: begin.talk, tools: "t"}, begin},
			nil, []string{"main", "beside others masked"}},
		"the main one is masked": {[]runfile.ConversationRule{masks("agent", "", "", runfile.TreeMain)},
			[]request{begin, sub}, nil, []string{"main agent masked", "beside"}},
		"a rule that trains is first": {[]runfile.ConversationRule{sage, beside},
			[]request{begin, {talk: sub.talk, model: "opus"}, {talk: asks("You guess.", "Guess.")}}, nil,
			[]string{"main", "beside sages", "beside others masked"}},
		"compacted": {[]runfile.ConversationRule{beside},
			[]request{begin, on, {talk: asks("You mend.", "You were mending.")}}, nil,
			[]string{"main", "main", "main"}},
		"rewritten": {[]runfile.ConversationRule{beside},
			[]request{begin, {talk: asks("You mend.", "Mend it.", "I said else.", "Go on.")}}, nil,
			[]string{"main", "main"}},
		"once more": {[]runfile.ConversationRule{beside}, []request{begin, begin}, nil, []string{"main", "main"}},
		"rewritten before a title": {[]runfile.ConversationRule{title, beside},
			[]request{begin, {talk: asks("You name.", "Mend it.")},
				{talk: asks("You mend.", "Mend it.", "I said else.", "Go on.")}}, nil,
			[]string{"main", "beside titles masked", "main"}},
		"with another date": {[]runfile.ConversationRule{beside},
			[]request{begin, {talk: asks("You mend. It is Tuesday.", "Mend it.", "said 0", "Go on.")}}, nil,
			[]string{"main", "main"}},
		"started anew": {[]runfile.ConversationRule{beside},
			[]request{begin, sub, {talk: asks("You mend. It is Tuesday.", "Mend it.")}}, []int{0, 1},
			[]string{"main", "beside others masked", "main"}},
		"twice beside": {[]runfile.ConversationRule{beside},
			[]request{begin, {talk: asks("You mend. It is Tuesday.", "Mend it.")}}, nil,
			[]string{"main", "beside others masked"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rollout{cfg: runfile.RunConfig{Conversations: c.rules}}
			for i, asked := range c.asked {
				a := asked.request(t, r.Turns)
				a.base, a.body = asked.tools, fmt.Appendf(nil, `{"model":%q}`, asked.model)
				var turn events.TurnSampled
				newTree(r.Turns).place(a, asked.tokens(), &turn)
				turn.Turn, turn.Content, turn.TokenIDs = i, fmt.Sprint("said ", i), []int32{1}
				var gone []int
				if i == len(c.asked)-1 {
					gone = c.gone
				}
				got := ""
				if turn.Conversation = r.conversation(a, gone); turn.Conversation != nil {
					if got = turn.Conversation.Tree; turn.Conversation.Rule != "" {
						got += " " + turn.Conversation.Rule
					}
					if turn.Conversation.Masked {
						got += " masked"
					}
				}
				if got != c.want[i] {
					t.Errorf("request %d is %q, want %q", i, got, c.want[i])
				}
				r.Turns = append(r.Turns, turn)
			}
		})
	}
}

// TestModelNames: what names no model names none.
func TestModelNames(t *testing.T) {
	for body, want := range map[string]string{`{"model":"m"}`: "m", `{}`: "", `{"model":7}`: "",
		`{"model":null}`: "", `{`: ""} {
		if got := (&ask{body: []byte(body)}).model(); got != want {
			t.Errorf("%s asks for %q, want %q", body, got, want)
		}
	}
}

// TestMaskedConversationsDecideNothing: how a masked conversation ends, and whether it has
// tokens, says nothing of the others: not whether they can be trained on, nor why the rollout
// stopped, nor how old it is.
func TestMaskedConversationsDecideNothing(t *testing.T) {
	turn := func(masked bool, change func(*events.TurnSampled)) events.TurnSampled {
		said := events.TurnSampled{Content: "said", PromptDelta: []int32{1}, TokenIDs: []int32{2, 3},
			Logprobs: []float32{-1, -2}, PolicyVersion: 4,
			Prompt: asks("", "asked"), NewSegment: true, FinishReason: events.FinishStop,
			Conversation: &events.Conversation{Rule: "titles", Masked: masked}}
		change(&said)
		return said
	}
	good := func(*events.TurnSampled) {}
	text := func(p *events.TurnSampled) { p.TextOnly, p.PromptDelta, p.TokenIDs, p.Logprobs = true, nil, nil, nil }
	cut := func(p *events.TurnSampled) { p.FinishReason = events.FinishLength }
	old := func(p *events.TurnSampled) { p.PolicyVersion = 1 }
	for name, c := range map[string]struct {
		turns    []events.TurnSampled
		textOnly bool
		stopped  string
		oldest   int64
	}{
		"text in a masked one": {[]events.TurnSampled{turn(false, good), turn(true, text), turn(false, good)},
			false, events.StopFinished, 4},
		"text in another": {[]events.TurnSampled{turn(true, good), turn(false, text)}, true,
			events.StopFinished, 4},
		"text where all are masked": {[]events.TurnSampled{turn(true, good), turn(true, text)}, true,
			events.StopFinished, 5},
		"a masked one is cut": {[]events.TurnSampled{turn(false, good), turn(true, cut)}, false,
			events.StopFinished, 4},
		"another is cut": {[]events.TurnSampled{turn(false, cut), turn(true, good)},
			false, events.StopLength, 4},
		"all are masked": {[]events.TurnSampled{turn(true, good), turn(true, cut)},
			false, events.StopLength, 5},
		"a masked one is old": {[]events.TurnSampled{turn(true, old), turn(false, good)}, false,
			events.StopFinished, 4},
		"another is old": {[]events.TurnSampled{turn(true, good), turn(false, old)}, false,
			events.StopFinished, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rollout{Rollout: events.Rollout{Run: "r", ID: "x1-0",
				Started: events.RolloutStarted{Group: "x1", Task: "a", PolicyVersion: 5}, Turns: c.turns}}
			r.cfg.Limits.Turns, r.cfg.Limits.Tokens = 10, 1000
			for i := range r.Turns {
				r.Turns[i].Turn = i
			}
			tr, err := trajectory(&r.Rollout, r.stopped())
			if err != nil {
				t.Fatal(err)
			}
			data, err := storage.EncodeTrajectory(tr)
			if err != nil {
				t.Fatal(err)
			}
			if tr, err = storage.DecodeTrajectory(data); err != nil {
				t.Fatal(err)
			}
			f, wanted := events.NewRolloutFinished(tr), 0
			for i := range c.turns {
				if !c.textOnly && c.turns[i].MaskedBy() == "" {
					wanted += 2
				}
			}
			if f.TextOnly != c.textOnly || r.report().TextOnly != c.textOnly || f.Sampled != wanted ||
				f.StopReason != c.stopped || f.MinVersion != c.oldest {
				t.Errorf("%+v, want text only %t, %d tokens, stopped by %s, the oldest of version %d", f, c.textOnly,
					wanted, c.stopped, c.oldest)
			}
		})
	}
}

// TestMaskedConversationsAlone: whichever conversations are masked, no token of these is in the
// loss mask, and the samples of all others are as without any rule.
func TestMaskedConversationsAlone(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := &events.Rollout{Run: "r", ID: "x1-0", Started: events.RolloutStarted{Group: "x1", Task: "a"}}
		var known []*events.Conversation
		for range 1 + rng.IntN(4) {
			known = append(known, &events.Conversation{Rule: "titles", Masked: rng.IntN(2) == 0})
		}
		for i := range 1 + rng.IntN(15) {
			turn := events.TurnSampled{Turn: i, Content: fmt.Sprint("said ", i), PromptDelta: []int32{1, int32(i)},
				TokenIDs: []int32{2, 3},
				Logprobs: []float32{-1, -2}, Prompt: asks("", fmt.Sprint("asked ", i)),
				NewSegment: true, FinishReason: "stop"}
			turn.Conversation = known[rng.IntN(len(known))]
			if i > 0 && rng.IntN(3) > 0 {
				after := rng.IntN(i)
				turn.After, turn.Conversation = &after, r.Turns[after].Conversation
				turn.NewSegment = rng.IntN(3) == 0 ||
					slices.ContainsFunc(r.Turns, func(o events.TurnSampled) bool {
						return o.After != nil &&
							*o.After == after
					})
			}
			r.Turns = append(r.Turns, turn)
		}
		with, err := trajectory(r, events.StopFinished)
		if err != nil {
			t.Fatal(err)
		}
		segments := newTree(r.Turns).of
		masks := map[int]bool{}
		for i := range r.Turns {
			masks[segments[i]] = r.Turns[i].Conversation.Masked
			r.Turns[i].Conversation = nil
		}
		without, err := trajectory(r, events.StopFinished)
		if err != nil {
			t.Fatal(err)
		}
		got, all := with.Samples(), without.Samples()
		sampled := 0
		for i := range all {
			s, w := got[i], all[i]
			if !slices.Equal(s.Tokens, w.Tokens) || !slices.Equal(s.SamplerLogprobs, w.SamplerLogprobs) {
				t.Fatalf("seed %d: sample %d has other tokens or log-probabilities", seed, i)
			}
			if masks[i] != (s.Masked != "") || masks[i] == slices.Contains(s.LossMask, true) ||
				!masks[i] && !slices.Equal(s.LossMask, w.LossMask) {
				t.Fatalf("seed %d: sample %d is masked %t: by %q, %v", seed, i, masks[i], s.Masked, s.LossMask)
			}
			if !masks[i] {
				sampled += len(w.Turns)
			}
		}
		if f := events.NewRolloutFinished(with); f.Samples != len(all) || f.Unsampled() != (sampled == 0) {
			t.Fatalf("seed %d: figures %+v", seed, f)
		}
	}
}
