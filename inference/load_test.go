package inference_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// TestLoadOfEngines: the gauges of each engine are found in a page of many.
func TestLoadOfEngines(t *testing.T) {
	const other = "# HELP x a help\n# TYPE x gauge\nx{a=\"} 5\"} 7\nprocess_open_fds 12\n"
	for name, c := range map[string]struct {
		page string
		want inference.Load
	}{
		"vLLM": {"vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 12.0\nvllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3.0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n",
			inference.Load{Running: 12, Waiting: 3, KVUsage: 0.25}},
		"two engines of vLLM": {"vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 3\n" +
			"vllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 0\n" +
			"vllm:gpu_cache_usage_perc{engine=\"0\"} 0.5\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.125\n",
			inference.Load{Running: 5, Waiting: 1, KVUsage: 0.5}},
		"SGLang": {"sglang:num_running_reqs{model_name=\"a b\"} 5.0\nsglang:num_queue_reqs{model_name=\"a b\"} 0.0\n" +
			"sglang:token_usage{model_name=\"a b\"} 0.75 1763000000000\n", inference.Load{Running: 5, KVUsage: 0.75}},
		"llama.cpp": {"llamacpp:requests_processing 4\nllamacpp:requests_deferred 9\n",
			inference.Load{Running: 4, Waiting: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("asked for %s", r.URL)
				}
				fmt.Fprint(w, other+c.page+other)
			}))
			defer server.Close()
			client := inference.Client{HTTP: server.Client(), APIKey: "secret"}
			if got, err := client.Load(t.Context(), server.URL+"/v1"); err != nil || got != c.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestHostileMetrics: a page that says nothing sensible is an error, and one that does not end
// costs neither memory nor more than the time that it is given.
func TestHostileMetrics(t *testing.T) {
	right := "vllm:num_requests_running 1\nvllm:num_requests_waiting 1\n"
	for name, page := range map[string]func(w io.Writer){
		"nothing":           func(io.Writer) {},
		"another program's": func(w io.Writer) { fmt.Fprint(w, "up 1\n") },
		"NaN": func(w io.Writer) {
			fmt.Fprint(w,
				strings.Replace(right, "waiting 1", "waiting NaN", 1))
		},
		"negative": func(w io.Writer) {
			fmt.Fprint(w,
				strings.Replace(right, "running 1", "running -1", 1))
		},
		"huge": func(w io.Writer) {
			fmt.Fprint(w,
				strings.Replace(right, "running 1", "running 1e300", 1))
		},
		"more than any number": func(w io.Writer) {
			fmt.Fprint(w,
				strings.Replace(right, "running 1", "running 1e999", 1))
		},
		"infinite": func(w io.Writer) {
			fmt.Fprint(w,
				strings.Replace(right, "running 1", "running +Inf", 1))
		},
		"fuller than full": func(w io.Writer) { fmt.Fprint(w, right+"vllm:kv_cache_usage_perc 1.5\n") },
		"no number": func(w io.Writer) {
			fmt.Fprint(w,
				strings.Replace(right, "running 1", "running many", 1))
		},
		"no value": func(w io.Writer) {
			fmt.Fprint(w,
				"vllm:num_requests_running{\nvllm:num_requests_waiting\n{} 1\n")
		},
		"an endless line": func(w io.Writer) { endless(w, strings.Repeat("a", 1024)) },
		"endless lines":   func(w io.Writer) { endless(w, strings.Repeat("a 1\n", 256)) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { page(w) }))
			defer server.Close()
			client := inference.Client{HTTP: server.Client()}
			if got, err := client.Load(t.Context(), server.URL+"/v1"); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
	hanging := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, right)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer hanging.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	client := inference.Client{HTTP: hanging.Client()}
	if got, err := client.Load(ctx, hanging.URL+"/v1"); err == nil {
		t.Errorf("of a page that does not end: %+v", got)
	}
}

// endless writes until the reader has gone.
func endless(w io.Writer, text string) {
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}
