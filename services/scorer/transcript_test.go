package scorer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

func conversation(run string) *storage.Trajectory {
	t := servicetest.Trajectory(run, rollout, "a")
	t.StopReason = "finished"
	t.Messages = append(t.Messages, storage.Message{Index: int32(len(t.Messages)), Turn: 1, Role: "assistant",
		Content: "I asked <nobody>.", ToolCalls: `[{"name":"run"}]`, PolicyVersion: -1})
	return t
}

// TestTranscript: tests whose task says so find what was said, in process and apart, and cannot
// change it; others find nothing. The run's judge reads it, too.
func TestTranscript(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	const (
		reads   = `grep -q 'I asked <nobody>.' "$RONDO_TRANSCRIPT" && ! { echo x >> "$RONDO_TRANSCRIPT"; } 2>/dev/null && r=1 || r=0; echo $r > /logs/verifier/reward.txt` + "\n"
		without = `[ -z "$RONDO_TRANSCRIPT" ] && [ ! -e /transcript ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt` + "\n"
		apart   = `grep -q 'I asked <nobody>.' "$RONDO_TRANSCRIPT" && under-test sh -c '[ ! -e /transcript ]' && r=1 || r=0; echo $r > /logs/verifier/reward.txt` + "\n"
	)
	with := func(run, level string, wanted bool) func(*runfile.TaskSpec, *events.RolloutFinished) {
		return func(task *runfile.TaskSpec, f *events.RolloutFinished) {
			task.Transcript, task.Verifier = wanted, level
			f.Trajectory = servicetest.Finished(t, log.Store(), run, rollout, conversation(run)).Trajectory
		}
	}
	open(t, log, "reads", reads, with("reads", "", true))
	open(t, log, "apart", apart, with("apart", runfile.VerifierSeparate, true))
	open(t, log, "without", without, with("without", "", false))
	asked := make(chan string, 2)
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked <- string(body)
		fmt.Fprint(w, `{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"{\"score\": 0.5, \"reason\": \"so\"}"}}]}`)
	}))
	t.Cleanup(judge.Close)
	for run, wanted := range map[string]bool{"judged": true, "unjudged": false} {
		openWith(t, log, run, "echo 1 > /logs/verifier/reward.txt\n", func(cfg *runfile.RunConfig) {
			cfg.Scorer = runfile.Scoring{Weights: map[string]float64{"judge": 1},
				Judge: &runfile.Judge{Endpoint: judge.URL, Model: "judge", Rubric: "Is it polite?"}}
		}, with(run, "", wanted))
		if s := servicetest.WaitData[events.RolloutScored](t, log, run, events.RolloutScoredType,
			rollout); s.Reward != 0.5 {
			t.Errorf("%s: scored %+v", run, s)
		}
		if text := <-asked; strings.Contains(text, "I asked ") != wanted {
			t.Errorf("%s: the judge was asked %s", run, text)
		}
	}
	for _, run := range []string{"reads", "apart", "without"} {
		if s := servicetest.WaitData[events.RolloutScored](t, log, run, events.RolloutScoredType,
			rollout); s.Reward != 1 {
			t.Errorf("%s: scored %+v", run, s)
		}
	}
}

// TestTranscriptIsBounded: long texts lose their middle, and long conversations the
// messages behind the first two.
func TestTranscriptIsBounded(t *testing.T) {
	long := &storage.Trajectory{Rollout: rollout, Task: "a", StopReason: "turns"}
	for i := range 100 {
		m := storage.Message{Role: "tool", Turn: int32(i), Content: fmt.Sprint(i, strings.Repeat("x", 10_000), "end")}
		switch i {
		case 0:
			m.Role = "system"
		case 1:
			m.Role, m.Content = "user", strings.Repeat("y", 2*maxSaid)
		case 2:
			m.Role = "prompt"
		case 99:
			m.ToolCalls = `["` + strings.Repeat("z", 2*maxSaid) + `"]`
		}
		long.Messages = append(long.Messages, m)
	}
	for most, left := range map[int]int{maxTranscript: 0, 400_000: 70, 100: 96} {
		text, err := writeTranscript(long, most)
		if err != nil {
			t.Fatal(err)
		}
		var doc transcript
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		if doc.LeftOut < left || doc.LeftOut > left+6 && left > 0 || len(doc.Messages)+doc.LeftOut != 99 ||
			most > 1000 && len(text) > most {
			t.Errorf("at most %d: %d bytes, %d of 99 messages are left out, %d are there", most, len(text),
				doc.LeftOut, len(doc.Messages))
		}
		last := doc.Messages[len(doc.Messages)-1]
		if doc.Messages[0].Role != "system" || doc.Messages[1].Role != "user" ||
			len(doc.Messages[1].Content) > maxSaid+20 || last.Turn != 99 || !strings.HasSuffix(last.Content, "end") ||
			len(last.ToolCalls) > maxSaid+50 {
			t.Errorf("at most %d: %.200s", most, text)
		}
	}
}
