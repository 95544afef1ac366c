package fleet

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestLatencyIsOfTheAnswer: a turn's latency is that of the request that gave it. The wait for a
// slot, tries that failed and requests that were refused are not the agent's time.
func TestLatencyIsOfTheAnswer(t *testing.T) {
	const tooLong = `{"error":{"message":"This model's maximum context length is 100 tokens. However, you requested 150 tokens (90 in the messages, 60 in the completion).","code":400}}`
	good := reply{takes: 3 * time.Second}
	for name, c := range map[string]struct {
		a    []reply
		b    []reply
		busy bool
	}{
		"at once":                {a: []reply{good}},
		"behind one that has it": {a: []reply{{takes: 7 * time.Second}, good}, busy: true},
		"behind a failed try": {a: []reply{{status: http.StatusInternalServerError, takes: 4 * time.Second}},
			b: []reply{good}},
		"behind a refusal": {a: []reply{{status: http.StatusBadRequest, body: tooLong,
			takes: 5 * time.Second}, good}},
		"behind a server that is away": {a: []reply{{status: http.StatusServiceUnavailable, after: "2"}, good}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := func(replies []reply) func(int, time.Duration) reply {
					return func(n int, _ time.Duration) reply { return replies[n] }
				}
				hosts := []string{"a"}
				if c.b != nil {
					hosts = append(hosts, "b")
				}
				f, _ := newFarm(t, map[string]func(int, time.Duration) reply{"a": script(c.a), "b": script(c.b)}, nil)
				rollout := home(t, f, "a", hosts...)
				if c.busy {
					go func() { _, _ = f.Complete(t.Context(), call("other", 1, hosts...)) }()
					synctest.Wait()
				}
				asked := call(rollout, 1, hosts...)
				asked.Fit, asked.Patient, asked.Sampling.MaxTokens = true, true, 60
				answer, err := f.Complete(t.Context(), asked)
				if err != nil {
					t.Fatal(err)
				}
				if got := answer.Turn; got.SamplingTime() != good.takes ||
					!got.StartedAt.Equal(time.Now().Add(-good.takes)) {
					t.Errorf("%s from %s on, and it is %s", got.SamplingTime(), got.StartedAt, time.Now())
				}
			})
		})
	}
}
