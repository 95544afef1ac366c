package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// harness works through the gateway of a plane that may be killed at any moment: it
// repeats what was not answered.
type harness struct {
	t        *testing.T
	url      string
	key      string
	answered *atomic.Int64 // turns that it was told
}

// post repeats a request until it is answered with one of the codes.
func (h harness) post(ctx context.Context, path string, body any, into any, codes ...int) {
	data, err := json.Marshal(body)
	if err != nil {
		h.t.Error(err)
		return
	}
	var last string
	for ctx.Err() == nil {
		code, answer, err := h.try(ctx, path, data)
		if err == nil && slices.Contains(codes, code) {
			if err := json.Unmarshal(answer, into); err != nil {
				h.t.Errorf("POST %s answered %s: %v", path, answer, err)
			}
			return
		} else if err == nil && code < 500 {
			h.t.Errorf("POST %s answered %d: %s", path, code, answer)
			return
		}
		if ctx.Err() == nil {
			last = fmt.Sprintf("%d %s %v", code, answer, err)
		}
		retry.Sleep(ctx, 50*time.Millisecond)
	}
	h.t.Errorf("POST %s was not answered: %v; the last answer was %s", path, ctx.Err(), last)
}

func (h harness) try(ctx context.Context, path string, data []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+h.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

func readKey(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

type gatewayMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// work is one rollout of some turns; it returns what it was told, turn by turn.
func (h harness) work(ctx context.Context, group string, member int) (told []string) {
	var started struct{ ID string }
	h.post(ctx, "/rollouts", map[string]any{"run": "theirs", "task": "talk", "group": group, "size": 3,
		"member": member}, &started, http.StatusCreated)
	talk := []gatewayMessage{{"system", "You are a coding agent."}}
	for i := range 4 {
		talk = append(talk, gatewayMessage{"user", fmt.Sprintf("Question %d of member %d of %s.", i, member, group)})
		var answer struct {
			ID      string
			Choices []struct{ Message gatewayMessage }
		}
		h.post(ctx, "/rollouts/"+started.ID+"/v1/chat/completions", map[string]any{"messages": talk}, &answer,
			http.StatusOK)
		if len(answer.Choices) != 1 {
			return told
		}
		talk = append(talk, answer.Choices[0].Message)
		told = append(told, answer.ID)
		h.answered.Add(1)
	}
	var end struct{ State string }
	h.post(ctx, "/rollouts/"+started.ID+"/finish", map[string]any{"reward": float64(member)}, &end, http.StatusOK)
	return told
}

// TestKilledGatewayLosesNoAnswer kills the whole plane while harnesses work: every turn that one of
// them was told is in its rollout, and the books close.
func TestKilledGatewayLosesNoAnswer(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir, address := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	args := []string{"up", "--dir", dir, "--gateway-listen", address}
	file := filepath.Join(t.TempDir(), "run.yaml")
	writeFile(t, file, "policy: small\nendpoint: builtin\nexternal: true\ngroup_size: 3\nlimits: {timeout: 20m}\nfeeds: [{name: trainer, groups_per_batch: 2}]\n")
	up := start(t, args...)
	program.Eventually(t, func() error {
		return run(t.Context(), nil, "run", "open", "theirs", "--file", file, "--dir", dir)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*program.Patience)
	defer cancel()
	keyFile := filepath.Join(dir, "gateway.key") // it outlives the plane's restarts
	program.Eventually(t, func() error { _, err := os.Stat(keyFile); return err })
	h := harness{t, "http://" + address, readKey(t, keyFile), new(atomic.Int64)}
	groups, kills := nightly.Count(4, 12), nightly.Count(2, 8)
	var mu sync.Mutex
	var wg sync.WaitGroup
	told := map[string][]string{}
	for member := range 3 {
		wg.Go(func() {
			for group := range groups {
				name := fmt.Sprintf("g%d", group)
				ids := h.work(ctx, name, member)
				mu.Lock()
				told[fmt.Sprintf("theirs.x%s-%d", name, member)] = ids
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	killed := 0
	for working := true; working; {
		select {
		case <-done:
			working = false
		case <-time.After(5 * time.Millisecond):
			// the work, not the time, says when
			if killed < kills && h.answered.Load() > int64((killed+1)*groups*3*4/(kills+2)) {
				up.KillWithin(50 * time.Millisecond)
				killed++
				up = start(t, args...)
			}
		}
	}
	if killed < kills/2 {
		t.Errorf("the plane was killed %d times", killed)
	}
	for id, turns := range told {
		var rollout struct {
			State   string
			Turns   int
			Samples int
		}
		program.Eventually(t, func() error { return h.get("/rollouts/"+id, &rollout) })
		if len(turns) != 4 || rollout.State != "scored" || rollout.Turns < 4 || rollout.Samples > 1+rollout.Turns-4 {
			t.Errorf("%s was told %v and is %+v", id, turns, rollout)
		}
		for i, turn := range turns {
			// A call that was not answered may be a turn, too, so numbers may be skipped, but
			// each names another turn.
			if slices.Index(turns, turn) != i {
				t.Errorf("%s was told turn %s twice", id, turn)
			}
		}
	}
	program.Eventually(t, func() error {
		var a audit
		if err := run(t.Context(), &a, "audit", "theirs", "--json", "--dir", dir); err != nil {
			return err
		}
		if a.Trained+a.Stale+a.Filtered != 3*groups {
			return fmt.Errorf("the books say %+v", a)
		}
		return nil
	})
	up.Stop(t)
	var a audit
	mustRun(t, &a, "audit", "theirs", "--json", "--dir", dir)
	checkAudit(t, a)
	recompute(t, "theirs", []string{"advantagecalculator", "trainerfeeder/trainer"}, "--dir", dir)
}

func (h harness) get(path string, into any) error {
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+h.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s answered %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
