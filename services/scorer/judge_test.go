package scorer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// judgedRun opens a run whose rewards are one half the verifier's and one half its judge's.
func judgedRun(t *testing.T, log *eventlog.Log, run, endpoint string) {
	t.Helper()
	cfg := servicetest.Config("a")
	cfg.Limits.Tries = 3
	cfg.Scorer = runfile.Scoring{
		Weights: map[string]float64{"reward": 0.5, "judge": 0.5},
		Judge:   &runfile.Judge{Endpoint: endpoint, Model: "judge", Rubric: "Is it simple?"},
	}
	files := map[string]string{"a.txt": "one\n"}
	task := &cfg.Tasks[0]
	task.Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, files))
	task.Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t,
		map[string]string{"test.sh": "echo 1 > /logs/verifier/reward.txt\n"}))
	workspace := changes(t, log, files, "echo two > a.txt")
	servicetest.OpenRun(t, log, run, cfg)
	servicetest.StartRollout(t, log, run, rollout, "a")
	servicetest.Append(t, log, servicetest.Event(t, run, events.RolloutFinishedType, rollout,
		"0", events.RolloutFinished{
			Task: "a", Workspace: &workspace, Trajectory: storage.Ref{Key: "runs/" + run + "/t.arrow",
				SHA256: strings.Repeat("1", 64), Size: 9},
		}))
}

// answering is a judge that answers what the function says for its n-th request, from 1.
func answering(t *testing.T, answer func(n int64) (status int, content string)) (endpoint string, asked *atomic.Int64) {
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Model       string   `json:"model"`
			Temperature *float64 `json:"temperature"`
			Messages    []struct {
				Role, Content string
			} `json:"messages"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Model != "judge" ||
			request.Temperature == nil || *request.Temperature != 0 || len(request.Messages) != 2 ||
			!strings.Contains(request.Messages[0].Content, "Is it simple?") ||
			!strings.Contains(request.Messages[1].Content, `"a.txt": 1 lines less, 1 lines more`) {
			t.Errorf("asked %+v, %v", request, err)
		}
		status, content := answer(asked.Add(1))
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(
			map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant",
				"content": content}}}})
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", asked
}

// TestJudge: its score is a component and its answer kept; what it fails at is tried again and then
// fails the rollout, and is never a 0.
func TestJudge(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	const good = `{"score": 0.5, "reason": "It is."}`
	steady, asked := answering(t, func(int64) (int, string) { return 200, good })
	judgedRun(t, log, "steady", steady)
	flaky, _ := answering(t, func(n int64) (int, string) {
		if n == 1 {
			return 503, "later"
		}
		return 200, "```json\n" + good + "\n```"
	})
	judgedRun(t, log, "flaky", flaky)
	odd, _ := answering(t, func(int64) (int, string) { return 200, "I would say that it is a 0." })
	judgedRun(t, log, "odd", odd)
	away, _ := answering(t, func(int64) (int, string) { return 500, "no" })
	judgedRun(t, log, "away", away)

	for _, run := range []string{"steady", "flaky"} {
		s := servicetest.WaitData[events.RolloutScored](t, log, run, events.RolloutScoredType, rollout)
		if s.Reward != 0.75 || s.Components["judge"] != 0.5 || s.Judgement == nil {
			t.Fatalf("%s: %+v", run, s)
		}
		if text, err := storage.GetBlob(t.Context(), log.Store(), *s.Judgement); err != nil ||
			!strings.Contains(string(text), good) {
			t.Errorf("%s: the answer is %q: %v", run, text, err)
		}
	}
	for run, class := range map[string]string{"odd": events.ClassBadResponse, "away": events.ClassEndpoint} {
		failed := servicetest.WaitData[events.RolloutFailed](t, log, run, events.RolloutFailedType, rollout)
		if failed.Stage != events.StageScorer || failed.Class != class ||
			!strings.Contains(failed.Message, "(3 tries)") {
			t.Errorf("%s: %+v", run, failed)
		}
		if n := len(servicetest.All(t, log, run, events.RolloutRetriedType)); n != 2 {
			t.Errorf("%s: tried again %d times", run, n)
		}
		if scored := servicetest.All(t, log, run, events.RolloutScoredType); len(scored) > 0 {
			t.Errorf("%s: has a reward", run)
		}
	}

	// Scored again, by other weights or another verifier, the recorded judgement counts.
	r, err := log.Rollout(t.Context(), "steady", rollout)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := log.Config(t.Context(), "steady")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Scorer.Weights = map[string]float64{"judge": 1}
	again, err := Rerun(t.Context(), log.Store(), Options{}, cfg, cfg.Tasks[0], &r)
	if err != nil || again.Reward != 0.5 || asked.Load() != 1 {
		t.Errorf("%+v, %v; asked %d times", again, err, asked.Load())
	}
}

func TestReadJudgement(t *testing.T) {
	for text, want := range map[string]float64{
		`{"score": 1, "reason": ""}`: 1, ` {"score": 0} `: 0,
		"```json\n{\"score\": 0.25, \"reason\": \"x\"}\n```": 0.25,
		`{"score": 1.5}`: -1, `{"score": -0.1}`: -1, `{"score": "1"}`: -1, `{"score": null}`: -1, `{}`: -1, ``: -1,
		`1`: -1, `[{"score": 1}]`: -1, `{"score": NaN}`: -1,
		`{"score": 1} {"score": 0}`: -1, `{"score": 1, "score": 0}`: -1, `{"score": 1, "other": 2}`: -1,
		`The score is {"score": 1}`: -1, `{"score": 1e999}`: -1,
		strings.Repeat(" ", maxJudgement) + `{"score": 1}`: -1,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := readJudgement(text)
			if (err != nil) != (want == -1) || err == nil && got != want || err != nil && len(err.Error()) > 1000 {
				t.Errorf("%.80q: %g, %v", text, got, err)
			}
		})
	}
}

// TestJudgedIsBounded: a change of any size is a request of a bounded one.
func TestJudgedIsBounded(t *testing.T) {
	var c change
	for i := range 500 {
		c.files = append(c.files, edited{fmt.Sprintf("f%d\x00\xff", i), nil, []byte(strings.Repeat("line\n", 20_000))})
	}
	text := judged("===", strings.Repeat("x", 1<<20), nil, c)
	if len(text) > 2*maxJudged || !strings.Contains(text, "more files are left out") || strings.ContainsRune(text, 0) {
		t.Errorf("%d bytes", len(text))
	}
}
