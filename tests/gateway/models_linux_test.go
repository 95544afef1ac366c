package gateway

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

// titles is a rule by which another model answers titles.
func titles(url string) []runfile.ConversationRule {
	return []runfile.ConversationRule{{Name: "titles", System: "You are a title generator", Train: new(false),
		Endpoint: &runfile.Endpoint{URL: url, Model: "small-1"}}}
}

// names is a model that says titles.
func names(int, ask) said { return said{content: "ZZZ"} }

// answeredBy holds the turns of a rollout to who has answered them:
// "small-1", or "" for the policy.
func answeredBy(t *testing.T, r events.Rollout, want ...string) {
	t.Helper()
	var got []string
	for _, turn := range r.Turns {
		model := turn.AnsweredBy()
		got = append(got, model)
		is := *turn.Conversation
		if other := (is == events.Conversation{Tree: is.Tree, Rule: is.Rule, Masked: true,
			Model: "small-1"}); other != (model != "") {
			t.Errorf("turn %d is of %+v", turn.Turn, is)
		}
		bare := turn.TextOnly && len(turn.TokenIDs)+len(turn.PromptDelta)+len(turn.Logprobs)+len(turn.Lacks) == 0 &&
			turn.PolicyVersion == runfile.UnknownVersion
		if bare != (model != "") || turn.PromptTokens == 0 || turn.CompletionTokens == 0 || turn.Sampling == nil {
			t.Errorf("turn %d of %q is %+v", turn.Turn, model, turn)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("turns are answered by %q, want %q", got, want)
	}
}

// trainedOn holds the first batch to the policy's own words: none of its tokens is another model's.
func (p *plane) trainedOn(t *testing.T, rollout string) {
	t.Helper()
	batch := servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	if batch.Samples != 1 || len(batch.LeftOut) == 0 {
		t.Errorf("a batch of %d samples, and left out are %v", batch.Samples, batch.LeftOut)
	}
	for _, why := range batch.LeftOut {
		if why != "conversations: titles" {
			t.Errorf("left out for %q", why)
		}
	}
	for _, file := range batch.Files {
		data, err := storage.GetBlob(t.Context(), p.log.Store(), file)
		if err != nil {
			t.Fatal(err)
		}
		read, err := storage.DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range read.Samples {
			if strings.Contains(sampled(s.Tokens), "ZZZ") {
				t.Errorf("a sample of rollout %s has tokens of another model: %q", rollout, sampled(s.Tokens))
			}
		}
	}
}

// TestOtherModels: a conversation goes to the model that its rule names, as a chat without tokens
// and within the run's max_tokens, and goes on there; the policy is asked for the others alone.
func TestOtherModels(t *testing.T) {
	t.Parallel()
	small := newBackend(t, names)
	title := func(p *plane, m member, conversation ...message) []message {
		var c completion
		reply := p.post(m.chat(), map[string]any{"model": "any", "messages": conversation, "temperature": 0.25,
			"max_tokens": 1 << 30, "stop": "END"}, http.StatusOK, &c)
		if !strings.Contains(string(reply.body), `"model":"small-1"`) {
			t.Errorf("the answer does not name its model: %s", reply.body)
		}
		return append(slices.Clip(conversation), c.Choices[0].Message)
	}
	play := func(t *testing.T, p *plane, m member, main func(...message) []message) {
		t.Helper()
		before := len(small.seen())
		first := title(p, m, system("You are a title generator"), user("Mend it."))
		talk := main(system("You mend."), user("Mend it."))
		title(p, m, append(first, user("Shorter."))...)
		main(append(talk, user("Go on."))...)
		p.finish(m, 1)
		r := p.rollout(m)
		answeredBy(t, r, "small-1", "", "small-1", "")
		most := runfile.DefaultRunConfig().Sampling.MaxTokens
		for _, a := range small.seen()[before:] {
			if a.Model != "small-1" || a.Logprobs || a.IDs || a.Seed != 0 || a.MaxTokens > most || a.MaxTokens < 1 ||
				a.Temperature != 0.25 ||
				a.TopK != nil || a.MinP != nil || fmt.Sprint(a.Stop) != "[END]" ||
				a.Messages[0]["content"] != "You are a title generator" {
				t.Errorf("it was asked %+v", a)
			}
		}
		if n := len(small.seen()) - before; n != 2 {
			t.Errorf("it was asked %d times", n)
		}
		if r.Finished.TextOnly || r.Finished.Masked != nil || r.Finished.Sampled == 0 ||
			r.Finished.StopReason != events.StopFinished {
			t.Errorf("finished %+v", r.Finished)
		}
		p.trainedOn(t, m.Rollout)
		p.prove(0)
	}
	t.Run("chats", func(t *testing.T) {
		policy := newBackend(t, counts)
		p := newPlane(t, policy.url, func(c *runfile.RunConfig) { c.GroupSize, c.Conversations = 1, titles(small.url) })
		m := p.start(nil)
		play(t, p, m, func(said ...message) []message { return p.say(m, said...) })
		for _, a := range policy.seen() {
			if !a.Logprobs || !a.IDs || a.Messages[0]["content"] != "You mend." {
				t.Errorf("the policy was asked %+v", a)
			}
		}
	})
	t.Run("tokens", func(t *testing.T) {
		k := newTalker(t, "Qwen3", func(c *runfile.RunConfig) { c.GroupSize, c.Conversations = 1, titles(small.url) })
		k.tools = nil
		play(t, k.plane, k.m, func(said ...message) []message { return k.ask("I look.", "", said...) })
		if turns := k.s.Turns(); len(turns) != 2 {
			t.Errorf("the policy was asked for %d turns", len(turns))
		}
	})
}

// TestAnotherModelIsAway: that it cannot be asked is a failure of the machine, no turn, and nothing
// to the other conversations.
func TestAnotherModelIsAway(t *testing.T) {
	t.Parallel()
	small := newBackend(t, func(n int, _ ask) said {
		if n == 0 {
			return said{status: http.StatusServiceUnavailable, raw: "loading"}
		}
		return said{content: "ZZZ"}
	})
	p := newPlane(t, newBackend(t, counts).url, func(c *runfile.RunConfig) { c.Conversations = titles(small.url) })
	m := p.start(nil)
	asked := map[string]any{"messages": []message{system("You are a title generator"), user("Mend it.")}}
	p.post(m.chat(), asked, http.StatusBadGateway, nil)
	p.say(m, system("You mend."), user("Mend it."))
	p.post(m.chat(), asked, http.StatusOK, nil)
	p.finish(m, 1)
	answeredBy(t, p.rollout(m), "", "small-1")
	p.prove(0)
}

// TestOtherModelsByTree: of two conversations that begin at once the first to be answered
// is the main one, and the other is asked of the model of its rule, whatever the policy
// has said to it meanwhile.
func TestOtherModelsByTree(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	policy := newBackend(t, func(n int, _ ask) said {
		both.Done()
		both.Wait()
		return said{content: text(n)}
	})
	small := newBackend(t, names)
	p := newPlane(t, policy.url, func(c *runfile.RunConfig) {
		c.Conversations = titles(small.url)
		c.Conversations[0].System, c.Conversations[0].Tree = "", runfile.TreeBeside
	})
	m := p.start(nil)
	var asked sync.WaitGroup
	for _, who := range []string{"You mend.", "You read."} {
		asked.Go(func() { p.say(m, system(who), user("Begin.")) })
	}
	asked.Wait()
	p.finish(m, 1)
	answeredBy(t, p.rollout(m), "", "small-1")
	if n := len(small.seen()); n != 1 {
		t.Errorf("the other model was asked %d times", n)
	}
	p.prove(0)
}

// TestOtherModelsBehindARestart: an agent that is killed and started anew has the answers of the
// other model from the log, as those of the policy.
func TestOtherModelsBehindARestart(t *testing.T) {
	t.Parallel()
	small := newBackend(t, names)
	g := gated{make(chan struct{}, 8), make(chan struct{})}
	p, policy := newAgentPlane(t, "titles", g.at(5, mends), func(cfg *runfile.RunConfig) {
		cfg.GroupSize, cfg.InFlight, cfg.Conversations = 1, 1, titles(small.url)
	})
	p.agents()
	<-g.asked
	killSandboxes(t, policy, os.Getpid(), 1)
	servicetest.Wait(t, p.log, "r", events.RolloutRetriedType, "*", 1)
	close(g.answer)
	const rollout = "g000001-0"
	scored := servicetest.WaitData[events.RolloutScored](t, p.log, "r", events.RolloutScoredType, rollout)
	r, err := p.log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	answeredBy(t, r, "small-1", "", "", "")
	if ended := r.AgentEnded(); scored.Reward != 1 || r.Restarts != 1 || ended.Recalled != 3 || len(ended.Left) != 0 ||
		r.Finished.Turns != 4 || r.Finished.Sampled == 0 {
		t.Errorf("reward %g, %d restarts, ended %+v, finished %+v", scored.Reward, r.Restarts, ended, r.Finished)
	}
	if n := len(small.seen()); n != 1 {
		t.Errorf("the other model was asked %d times", n)
	}
	sampledOnce(t, policy, 3, 1)
	p.trainedOn(t, rollout)
	servicetest.CloseRun(t, p.log, "r")
	planes.Prove(t, p.log, "r")
}
