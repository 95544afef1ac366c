package toolrunner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// reader is a model that reads a file with two tools, and then ends; its tokens are the
// bytes of what it is asked.
func reader(t *testing.T, file string) *httptest.Server {
	t.Helper()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		prompt := make([]int, len(body))
		for i, b := range body {
			prompt[i] = int(b)
		}
		type object = map[string]any
		call := func(id, name, arguments string) object {
			return object{"id": id, "type": "function", "function": object{"name": name, "arguments": arguments}}
		}
		message, finish := object{"role": "assistant", "content": "Done."}, "stop"
		if calls.Add(1) == 1 {
			finish = "tool_calls"
			message["tool_calls"] = []object{
				call("c0", "run_terminal_cmd", fmt.Sprintf(`{"command":"cat %s; echo done","is_background":false}`,
					file)), call("c1", "read_file", fmt.Sprintf(`{"target_file":%q}`, file)),
			}
		}
		choice := object{"index": 0, "finish_reason": finish, "message": message, "token_ids": []int{1, 2},
			"logprobs": object{"content": []object{{"logprob": -1}, {"logprob": -1}}}}
		if err := json.NewEncoder(w).Encode(object{"prompt_token_ids": prompt,
			"choices": []object{choice}}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// kept says where a run keeps a text: in events, in objects of the store beside the
// snapshot, and in the trajectory.
func kept(t *testing.T, log *eventlog.Log, run, text string) (found []string) {
	t.Helper()
	for e, err := range log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(e.Data), text) {
			found = append(found, "event "+string(e.Type))
		}
		if e.Type == events.RolloutFinishedType {
			break
		}
	}
	cfg, err := log.Config(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range log.Store().List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if data, err := log.Store().Get(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		} else if info.Key != cfg.Tasks[0].Snapshot.Key && strings.Contains(string(data), text) {
			found = append(found, "object "+info.Key)
		}
	}
	finished := servicetest.WaitData[events.RolloutFinished](t, log, run, events.RolloutFinishedType, rollout)
	data, err := storage.GetBlob(t.Context(), log.Store(), finished.Trajectory)
	if err != nil {
		t.Fatal(err)
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range trajectory.Messages {
		var tokens strings.Builder
		for _, id := range m.TokenIDs {
			tokens.WriteByte(byte(id))
		}
		for what, in := range map[string]string{"text": fmt.Sprintf("%+v", m), "tokens": tokens.String()} {
			if strings.Contains(in, text) {
				found = append(found, fmt.Sprintf("%s of message %d of the trajectory", what, i))
			}
		}
	}
	return found
}

// count is the sum of a counter over its labels.
func count(t *testing.T, c prometheus.Collector) (sum float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// TestSecretsStayOut of the log, the store, the model's prompt and the trajectory of a run that
// wants it; a run that does not has them in each of these.
func TestSecretsStayOut(t *testing.T) {
	sandboxtest.Require(t)
	for run, features := range map[string][]string{"open": nil, "closed": {runfile.FeatureRedactSecrets}} {
		log := natstest.Log(t)
		open(t, log, run, func(c *runfile.RunConfig) {
			c.Features = features
			c.Endpoint = reader(t, "credentials").URL + "/v1"
			c.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(),
				sandboxtest.Pack(t, map[string]string{"credentials": "aws_access_key_id = " + awsKey + "\n"}))
		})
		s, stop := service(t, log, nil)
		env := servicetest.Env(t, log)
		servers := servicetest.Fleet(t, env, nil)
		servicetest.Start(t, func(ctx context.Context) error {
			return generator.Run(ctx, env, servers,
				generator.DefaultOptions())
		})
		done := answers(t, log, run, 0)
		found := strings.Join(kept(t, log, run, awsKey), "\n")
		counted := count(t, s.redacted)
		stop()
		if features == nil {
			for _, place := range []string{"event rollout.tools_completed", "text of message", "tokens of message"} {
				if !strings.Contains(found, place) {
					t.Errorf("without the feature: no %s has the secret, so that this test would not find it:\n%s",
						place, found)
				}
			}
			if done.Redacted != nil || counted != 0 {
				t.Errorf("without the feature: %v are redacted, and counted %g", done.Redacted, counted)
			}
			continue
		}
		const marker = "aws_access_key_id = [redacted: aws-access-token]"
		if found != "" || done.Redacted["aws-access-token"] != 2 || len(done.Redacted) != 1 || counted < 2 {
			t.Errorf("redacted %v, counted %g; the secret is in\n%s", done.Redacted, counted, found)
		}
		if in := strings.Join(kept(t, log, run, marker), "\n"); !strings.Contains(in, "tools_completed") ||
			!strings.Contains(in, "tokens of") {
			t.Errorf("the marker is in\n%s", in)
		}

		r, err := log.Rollout(t.Context(), run, rollout)
		if err != nil {
			t.Fatal(err)
		}
		if again := repeat(t, log, r); again.Calls != 2 || len(again.Changed) > 0 {
			t.Errorf("run again: %+v", again)
		}
	}
}
