package inference_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/inference"
)

// TestSlotsOfEngines: each engine says in its own place how many requests it samples at once. One
// that says nothing sensible has said none, and one that is away is asked again.
func TestSlotsOfEngines(t *testing.T) {
	const cache = `vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="%d",num_gpu_blocks="4096",num_gpu_blocks_override="None"} 1.0` + "\n"
	models := `{"data":[{"id":"m","owned_by":"vllm","max_model_len":32768}]}`
	for name, c := range map[string]struct {
		pages map[string]string // by path and query
		want  int
		again bool
	}{
		"vLLM in development mode": {map[string]string{"/server_info?config_format=json": `{"vllm_config":{"scheduler_config":{"max_num_seqs":256}}}`}, 256, false},
		"vLLM": {map[string]string{"/metrics": fmt.Sprintf(cache, 0), "/v1/models": models}, 2,
			false},
		"two engines of vLLM": {map[string]string{"/metrics": fmt.Sprintf(cache, 0) + fmt.Sprintf(cache, 1),
			"/v1/models": models}, 4, false},
		"a cache for less than one": {map[string]string{"/metrics": fmt.Sprintf(cache, 0),
			"/v1/models": strings.Replace(models, "32768", "131072", 1)}, 1, false},
		"a cache without blocks": {map[string]string{"/metrics": strings.Replace(fmt.Sprintf(cache, 0), "4096",
			"None", 1), "/v1/models": models}, 0, false},
		"SGLang":                 {map[string]string{"/server_info?config_format=json": `{"max_running_requests":null,"internal_states":[{"effective_max_running_requests_per_dp":128},{"effective_max_running_requests_per_dp":128}]}`}, 256, false},
		"llama.cpp":              {map[string]string{"/props": `{"total_slots":4}`}, 4, false},
		"TGI":                    {map[string]string{"/info": `{"max_concurrent_requests":128}`}, 128, false},
		"Ollama":                 {map[string]string{"/v1/models": models}, 0, false},
		"no number":              {map[string]string{"/props": `{"total_slots":"many"}`, "/info": `[]`}, 0, false},
		"more than there can be": {map[string]string{"/props": `{"total_slots":1000000}`}, 0, false},
		"one that loads":         {map[string]string{"/props": "503"}, 0, true},
		"a page that never ends": {map[string]string{"/info": `{"a":"` + strings.Repeat("x", 5<<20) +
			`","max_concurrent_requests":3}`}, 0, false},
		"a page of other numbers": {map[string]string{"/metrics": strings.Repeat(
			`vllm:cache_config_info{block_size="999999999",num_gpu_blocks="999999999"} 1`+"\n", 20)}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page, there := c.pages[r.URL.RequestURI()]
				switch {
				case page == "503":
					w.WriteHeader(http.StatusServiceUnavailable)
				case !there:
					w.WriteHeader(http.StatusNotFound)
				case r.Header.Get("Authorization") != "Bearer secret":
					t.Errorf("asked for %s without the key", r.URL)
				}
				fmt.Fprint(w, page)
			}))
			defer server.Close()
			client := inference.Client{HTTP: server.Client(), APIKey: "secret"}
			if n, err := client.Slots(t.Context(), server.URL+"/v1"); n != c.want || (err != nil) != c.again {
				t.Errorf("%d slots, %v", n, err)
			}
		})
	}
	client := inference.Client{HTTP: http.DefaultClient}
	if n, err := client.Slots(t.Context(), "http://127.0.0.1:1/v1"); n != 0 || err == nil {
		t.Errorf("nobody says %d, %v", n, err)
	}
}
