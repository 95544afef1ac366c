package runfile

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/storage"
)

func validTask(name string) TaskSpec {
	digest := strings.Repeat("ab", 32)
	ref := storage.Ref{Key: "blobs/sha256/ab/" + digest, SHA256: digest, Size: 1}
	return TaskSpec{Name: name, Workdir: "/app", Snapshot: ref, Tests: ref, Verifier: VerifierSeparate}
}

func validConfig() RunConfig {
	cfg := DefaultRunConfig()
	cfg.Policy, cfg.Endpoint = "repair", BuiltinEndpoint
	cfg.Tasks = []TaskSpec{validTask("a")}
	return cfg
}

func evaluation(c *RunConfig) { c.Epochs, c.Feeds = 2, nil }

func TestValidate(t *testing.T) {
	cfg := validConfig()
	if err := cfg.Validate(); err != nil {
		t.Fatalf("the default configuration: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*RunConfig)
		want   string // part of the message; "" when the configuration is valid
	}{
		"an endpoint": {func(c *RunConfig) { c.Endpoint = "http://127.0.0.1:8000/v1" }, ""},
		"an endpoint by tokens": {func(c *RunConfig) {
			c.Endpoint, c.EndpointAPI = "http://127.0.0.1:8000/v1", APITokens
		}, ""},
		"endpoint_api: chat": {func(c *RunConfig) { c.EndpointAPI = APIChat }, ""},
		"another endpoint_api": {func(c *RunConfig) { c.EndpointAPI = "token" },
			`endpoint_api "token": must be one of [chat tokens]`},
		"the built-in by tokens": {func(c *RunConfig) { c.EndpointAPI = APITokens },
			"the built-in policy takes messages alone"},
		"an external run's tokens": {func(c *RunConfig) {
			c.Endpoint, c.EndpointAPI, c.External = "http://127.0.0.1:8000/v1", APITokens, true
		}, ""},
		"a harness's images": {func(c *RunConfig) { c.External, c.Vision = true, true }, ""},
		"nobody's images":    {func(c *RunConfig) { c.Vision = true }, "vision: only harnesses and agents send images"},
		"images for a teacher": {func(c *RunConfig) {
			c.External, c.Vision, c.Teachers = true, true,
				[]Teacher{{Name: "a", URL: "http://127.0.0.1:8000/v1", Model: "m"}}
		}, "vision: teachers are given tokens alone"},
		"an endpoint with TLS": {func(c *RunConfig) { c.Endpoint = "https://vllm.example:443/v1" }, ""},
		"every estimator":      {func(c *RunConfig) { c.Advantage.Estimator = Estimators[len(Estimators)-1] }, ""},
		"staleness 0":          {func(c *RunConfig) { c.Staleness.Max = 0 }, ""},
		"temperature 0":        {func(c *RunConfig) { c.Sampling.Temperature = 0 }, ""},
		"two feeds": {func(c *RunConfig) {
			c.Feeds = []Feed{{Name: "a", GroupsPerBatch: 1}, {Name: "b", GroupsPerBatch: 10000}}
		}, ""},
		"no policy":                {func(c *RunConfig) { c.Policy = "" }, `policy ""`},
		"a policy with dots":       {func(c *RunConfig) { c.Policy = "a.b" }, `policy "a.b"`},
		"no endpoint":              {func(c *RunConfig) { c.Endpoint = "" }, `endpoint ""`},
		"an endpoint without host": {func(c *RunConfig) { c.Endpoint = "http:///v1" }, "endpoint"},
		"an endpoint of a file":    {func(c *RunConfig) { c.Endpoint = "file:///etc/passwd" }, "endpoint"},
		"an endpoint with a key":   {func(c *RunConfig) { c.Endpoint = "http://user:secret@host/v1" }, "endpoint"},
		"an endpoint with a query": {func(c *RunConfig) { c.Endpoint = "http://host/v1?key=secret" }, "endpoint"},
		"a broken one with a key":  {func(c *RunConfig) { c.Endpoint = "http://user:secret%zz@host/v1" }, "endpoint"},
		"no groups":                {func(c *RunConfig) { c.GroupSize = 0 }, "group_size 0: must be 1 to 1024"},
		"a huge group":             {func(c *RunConfig) { c.GroupSize = 1025 }, "group_size 1025"},
		"an unknown verifier": {func(c *RunConfig) { c.MinVerifier = "far" },
			`min_verifier "far": must be one of [separate in-process in-process-without-canaries]`},
		"tests in process": {func(c *RunConfig) { c.Tasks[0].Verifier = "" },
			`tasks ["a"]: the verifier is not apart from the code under test: tests that run in-process-without-canaries`},
		"tests with canaries": {func(c *RunConfig) { c.Tasks[0].Verifier = VerifierInProcess },
			"say min_verifier: in-process in the run file (it is separate now)"},
		"taken with canaries": {func(c *RunConfig) {
			c.Tasks[0].Verifier, c.MinVerifier = VerifierInProcess,
				VerifierInProcess
		}, ""},
		"taken with them alone": {func(c *RunConfig) {
			c.Tasks[0].Verifier, c.MinVerifier = VerifierUnguarded,
				VerifierInProcess
		}, "say min_verifier: in-process-without-canaries"},
		"taken without canaries": {func(c *RunConfig) { c.Tasks[0].Verifier, c.MinVerifier = "", VerifierUnguarded },
			""},
		"an evaluation takes all": {func(c *RunConfig) { evaluation(c); c.Tasks[0].Verifier = "" }, ""},
		"unless it says otherwise": {func(c *RunConfig) {
			evaluation(c)
			c.Tasks[0].Verifier, c.MinVerifier = "",
				VerifierSeparate
		}, "it is separate now"},
		"a task's verifier": {func(c *RunConfig) { c.Tasks[0].Verifier = "far" },
			`verifier "far": must be one of [separate in-process in-process-without-canaries]`},
		"an unknown isolation": {func(c *RunConfig) { c.MinIsolation = "vm" },
			`min_isolation "vm": must be one of [namespaces landlock none]`},
		"negative steps": {func(c *RunConfig) { c.Steps = -1 }, "steps -1"},
		"too many survivors": {func(c *RunConfig) { c.Filters.MinSurvivors = c.GroupSize + 1 },
			"feeds: trainer: filters.min_survivors 9: no group has so many members, as group_size is 8"},
		"negative staleness": {func(c *RunConfig) { c.Staleness.Max = -1 }, "staleness.max -1"},
		"an unknown estimator": {func(c *RunConfig) { c.Advantage.Estimator = "ppo" },
			`advantage.estimator "ppo": must be one of [`},
		"a temperature of NaN": {func(c *RunConfig) { c.Sampling.Temperature = math.NaN() },
			"sampling.temperature NaN"},
		"all sampling set": {func(c *RunConfig) {
			c.Endpoint = "http://127.0.0.1:8000/v1"
			c.Sampling.TopP, c.Sampling.TopK, c.Sampling.MinP, c.Sampling.RepetitionPenalty = new(0.9),
				new(20), new(0.05), new(1.1)
			c.Sampling.PresencePenalty, c.Sampling.FrequencyPenalty, c.Sampling.Stop = new(-2.0),
				new(2.0), []string{"end"}
			c.Sampling.ChatTemplateKwargs, c.SystemPrompt = map[string]any{"enable_thinking": false}, ""
		}, ""},
		"sampling left to the server": {func(c *RunConfig) { c.Sampling = Sampling{Temperature: 1, MaxTokens: 1} }, ""},
		"top_p 0": {func(c *RunConfig) { c.Sampling.TopP = new(0.0) },
			"sampling.top_p 0: must be above 0"},
		"top_p of NaN": {func(c *RunConfig) { c.Sampling.TopP = new(math.NaN()) }, "sampling.top_p NaN"},
		"top_k 0": {func(c *RunConfig) { c.Sampling.TopK = new(0) },
			"sampling.top_k 0: must be -1"},
		"min_p above 1": {func(c *RunConfig) { c.Sampling.MinP = new(1.1) }, "sampling.min_p 1.1"},
		"a penalty of 0": {func(c *RunConfig) { c.Sampling.RepetitionPenalty = new(0.0) },
			"sampling.repetition_penalty 0"},
		"a presence penalty of 3": {func(c *RunConfig) { c.Sampling.PresencePenalty = new(3.0) },
			"sampling.presence_penalty 3"},
		"an infinite penalty": {func(c *RunConfig) { c.Sampling.FrequencyPenalty = new(math.Inf(-1)) },
			"sampling.frequency_penalty -Inf"},
		"an empty stop": {func(c *RunConfig) { c.Sampling.Stop = []string{""} }, "sampling.stop"},
		"many stops": {func(c *RunConfig) { c.Sampling.Stop = slices.Repeat([]string{"end"}, 17) },
			"sampling.stop: 17 texts"},
		"a huge template": {func(
			c *RunConfig) {
			c.Sampling.ChatTemplateKwargs = map[string]any{"a": strings.Repeat("x", 5000)}
		},
			"chat_template_kwargs: want at most"},
		"summaries": {func(c *RunConfig) {
			c.Limits.ContextFull, c.Limits.Summaries, c.SummaryPrompt = ContextSummarise, 9, "Sum up."
		}, ""},
		"an odd full context": {func(c *RunConfig) { c.Limits.ContextFull = "forget" },
			`limits.context_full "forget": must be truncate or summarise`},
		"too many summaries": {func(c *RunConfig) {
			c.Limits.ContextFull, c.Limits.Summaries = ContextSummarise,
				1001
		}, "limits.summaries 1001: must be 0 to 1000"},
		"unused summaries": {func(c *RunConfig) { c.Limits.Summaries = 1 },
			"limits.summaries 1: it is for limits.context_full: summarise"},
		"unused summary prompt": {func(c *RunConfig) { c.SummaryPrompt = "Sum up." },
			"summary_prompt: it is for limits.context_full: summarise"},
		"an empty summary prompt": {func(c *RunConfig) {
			c.Limits.ContextFull, c.SummaryPrompt = ContextSummarise,
				" "
		}, "summary_prompt: it has no text"},
		"a huge summary prompt": {func(c *RunConfig) {
			c.Limits.ContextFull, c.SummaryPrompt = ContextSummarise, strings.Repeat("x", 20000)
		}, "summary_prompt: 20000 bytes"},
		"summaries elsewhere": {func(c *RunConfig) { c.External, c.Limits.ContextFull = true, ContextSummarise },
			"the harness of an external run decides"},
		"the pool of summaries": {func(c *RunConfig) { c.Pool = RouteSummary }, "pool"},
		"a huge system prompt": {func(c *RunConfig) { c.SystemPrompt = strings.Repeat("x", 70000) },
			"system_prompt: 70000 bytes"},
		"top_p of the built-in": {func(c *RunConfig) { c.Endpoint, c.Sampling.TopP = BuiltinEndpoint, new(0.9) },
			"the built-in policy samples by temperature alone; leave out top_p"},
		"an infinite temperature": {func(c *RunConfig) { c.Sampling.Temperature = math.Inf(1) },
			"sampling.temperature"},
		"no tokens":            {func(c *RunConfig) { c.Sampling.MaxTokens = 0 }, "sampling.max_tokens 0"},
		"no turns":             {func(c *RunConfig) { c.Limits.Turns = 0 }, "limits.turns 0"},
		"no context":           {func(c *RunConfig) { c.Limits.Tokens = 0 }, "limits.tokens 0"},
		"no time":              {func(c *RunConfig) { c.Limits.Timeout = 0 }, "limits.timeout 0s"},
		"no tries":             {func(c *RunConfig) { c.Limits.Tries = 0 }, "limits.tries 0"},
		"restarts without end": {func(c *RunConfig) { c.Limits.AgentRestarts = 20 }, "limits.agent_restarts 20"},
		"too many tries":       {func(c *RunConfig) { c.Limits.Tries = 1000 }, "limits.tries 1000"},
		"a strange pool":       {func(c *RunConfig) { c.Pool = "a b" }, `pool "a b"`},
		"a runner's pool":      {func(c *RunConfig) { c.Pool = "runner-1" }, `pool "runner-1"`},
		"a pool without room":  {func(c *RunConfig) { c.Pool = strings.Repeat("p", 56) }, `at most 55`},
		"a strange label":      {func(c *RunConfig) { c.Tasks[0].Labels = []string{"a b"} }, `label "a b"`},
		"too many needs": {func(c *RunConfig) {
			for i := range 33 {
				task := c.Tasks[0]
				task.Name, task.CPUs = fmt.Sprint("n", i), i+1
				c.Tasks = append(c.Tasks, task)
			}
		}, `34 different needs`},
		"no tasks": {func(c *RunConfig) { c.Tasks = nil }, "tasks: the run has none"},
		"one task twice": {func(c *RunConfig) {
			c.Tasks = []TaskSpec{validTask("a"), validTask("b"),
				validTask("a")}
		}, `tasks: 2 ("a"): name: it appears twice`},
		"a task without a name": {func(c *RunConfig) { c.Tasks[0].Name = "" }, "tasks: 0"},
		"a task in no folder":   {func(c *RunConfig) { c.Tasks[0].Workdir = "app" }, `workdir "app"`},
		"a task without files":  {func(c *RunConfig) { c.Tasks[0].Snapshot = storage.Ref{} }, "snapshot"},
		"texts alone": {func(c *RunConfig) {
			c.Tasks = []TaskSpec{{Name: "a", Workdir: "/"}, {Name: "b", Workdir: "/"}}
		}, `tasks: 2 of them, the first one "a", have neither a workspace nor tests: name in the run file who rates them (scorer: {function: NAME})`},
		"texts with a function": {func(c *RunConfig) {
			c.Tasks, c.Scorer.Function = []TaskSpec{{Name: "a", Workdir: "/"}}, "exact"
		}, ""},
		"a model's name": {func(c *RunConfig) { c.Policy = "Qwen/Qwen3-0.6B" },
			"endpoints: [{url: URL, model: NAME}]"},
		"an evaluation":              {evaluation, ""},
		"one of the first version":   {func(c *RunConfig) { evaluation(c); c.PolicyVersion = new(int64(0)) }, ""},
		"one that feeds a trainer":   {func(c *RunConfig) { c.Epochs = 1 }, ""},
		"a version before the first": {func(c *RunConfig) { c.PolicyVersion = new(int64(-1)) }, "policy_version -1"},
		"negative epochs":            {func(c *RunConfig) { c.Epochs = -1 }, "epochs -1: must be 0 to 10000"},
		"epochs and steps":           {func(c *RunConfig) { evaluation(c); c.Steps = 3 }, "epochs 2 and steps 3"},
		"epochs and a curriculum": {func(c *RunConfig) { evaluation(c); c.Curriculum = &Curriculum{} },
			"leave out the curriculum"},
		"epochs of outsiders": {func(c *RunConfig) { evaluation(c); c.External = true },
			"an external run tries no tasks"},
		"room in training": {func(c *RunConfig) { c.InFlight = 9 }, ""},
		"negative room":    {func(c *RunConfig) { evaluation(c); c.InFlight = -1 }, "in_flight -1"},
		"no feeds":         {func(c *RunConfig) { c.Feeds = nil }, "feeds: the run has none"},
		"modules without Go": {func(c *RunConfig) {
			c.Tasks[0].Toolchains, c.Tasks[0].Modules = nil,
				c.Tasks[0].Snapshot
		}, "modules: they are for the toolchains go and node"},
		"modules that are nowhere": {func(c *RunConfig) {
			c.Tasks[0].Toolchains, c.Tasks[0].Modules = []string{"go"}, storage.Ref{Key: "../x"}
		}, `modules: `},
		"one feed twice": {func(c *RunConfig) {
			c.Feeds = []Feed{{Name: "a", GroupsPerBatch: 1},
				{Name: "a", GroupsPerBatch: 2}}
		}, `feeds: "a" appears twice`},
		"a strange feed": {func(c *RunConfig) { c.Feeds = []Feed{{Name: "a/b", GroupsPerBatch: 1}} },
			`feeds: name "a/b"`},
		"an empty batch": {func(c *RunConfig) { c.Feeds = []Feed{{Name: "a", GroupsPerBatch: 0}} },
			"feeds: a: groups_per_batch 0"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			c.change(&cfg)
			err := cfg.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the message holds a password: %v", err)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("one mistake gives more than one message: %v", err)
			}
		})
	}
	// Everything that is wrong is said at once.
	err := (&RunConfig{}).Validate()
	if n := strings.Count(err.Error(), "\n") + 1; n < 10 {
		t.Errorf("an empty configuration has %d mistakes only: %v", n, err)
	}
}

func TestTask(t *testing.T) {
	cfg := RunConfig{Tasks: []TaskSpec{{Name: "a", Digest: "1"}, {Name: "b", Digest: "2"}}}
	if task, err := cfg.Task("b"); err != nil || task.Digest != "2" {
		t.Errorf("task b: %+v, %v", task, err)
	}
	if _, err := cfg.Task("c"); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("task c: %v", err)
	}
}

func TestDuration(t *testing.T) {
	for name, codec := range map[string]struct {
		marshal   func(any) ([]byte, error)
		unmarshal func([]byte, any) error
	}{"JSON": {json.Marshal, json.Unmarshal}, "YAML": {yaml.Marshal,
		func(b []byte, v any) error { return yaml.Unmarshal(b, v) }}} {
		t.Run(name, func(t *testing.T) {
			want := Limits{Turns: 1, Timeout: Duration(90 * time.Second)}
			text, err := codec.marshal(want)
			if err != nil || !strings.Contains(string(text), "1m30s") {
				t.Fatalf("%s, %v", text, err)
			}
			var got Limits
			if err := codec.unmarshal(text, &got); err != nil || got != want {
				t.Errorf("%s is read as %+v, %v", text, got, err)
			}
		})
	}
	var d Duration
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "2w": 336 * time.Hour,
		"1w1d1h30m": 193*time.Hour + 30*time.Minute, "0d": 0, "-5m": -5 * time.Minute} {
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%q is read as %s, %v, want %s", text, time.Duration(d), err, want)
		}
	}
	for _, text := range []string{"90", "", "soon", "5 m", "d", "7d-2h", "-7d", "7d7d", "1d2w",
		"99999d", "9999w2500000h"} {
		if err := d.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "90s, 5m or 7d") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestModel(t *testing.T) {
	cfg := RunConfig{Policy: "repair"}
	if got := cfg.Model(); got != "repair" {
		t.Errorf("of no version: %s", got)
	}
	for version, want := range map[int64]string{0: "repair@0", 12: "repair@12"} {
		cfg.PolicyVersion = &version
		if got := cfg.Model(); got != want {
			t.Errorf("of version %d: %s", version, got)
		}
	}
}

// The configuration travels in run_opened: nothing of it may be lost on the way.
func TestConfigTravels(t *testing.T) {
	cfg := validConfig()
	cfg.Seed, cfg.Steps, cfg.Advantage.ShuffleRewards = 7, 9, true
	cfg.Epochs, cfg.InFlight, cfg.PolicyVersion = 2, 3, new(int64(0))
	cfg.Tasks[0] = TaskSpec{Name: "a", Digest: "d", Instruction: "Fix it.\n", Workdir: "/app",
		Toolchains: []string{"go"}, Env: map[string]string{"A": "b"},
		VerifierEnv: map[string]string{"C": "d"}, VerifierTimeout: Duration(time.Minute), MemoryMB: 512}
	sent, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got RunConfig
	if err := json.Unmarshal(sent, &got); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(got)
	if err != nil || string(again) != string(sent) || got.Tasks[0].Env["A"] != "b" || got.Limits != cfg.Limits ||
		got.PolicyVersion == nil || got.Epochs != 2 {
		t.Errorf("sent %s\nread %s, %v", sent, again, err)
	}
}
