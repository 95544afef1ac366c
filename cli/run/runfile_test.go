package run

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

func TestAdvantageOfARunFile(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		estimator string
		params    map[string]any
	}{
		"nothing said": {"", "mean_centred", nil},
		"an estimator": {"advantage: {estimator: rloo}", "rloo", nil},
		"the field's name": {"advantage: {estimator: grpo, params: {ddof: 0}}", "std_normalised",
			map[string]any{"ddof": uint64(0)}},
		"the field's other name": {"advantage: {estimator: dr_grpo}", "mean_centred", nil},
		"that name beside a preset": {"advantage: {preset: tinker, estimator: dr_grpo}",
			"mean_centred", map[string]any{}},
		"other settings alone": {"advantage: {span_weight: 0.5}", "mean_centred", nil},
		"parameters": {"advantage: {estimator: std_normalised, params: {ddof: 0, eps: 1.0e-8}}",
			"std_normalised", map[string]any{"ddof": uint64(0), "eps": 1e-8}},
		"an exponent without a point": {"advantage: {estimator: std_normalised, span_weight: 1e-2, params: {eps: 1e-8, eps_at: max}}",
			"std_normalised", map[string]any{"eps": 1e-8, "eps_at": "max"}},
		"a preset": {"advantage: {preset: trl_async}", "std_normalised",
			map[string]any{"ddof": 0.0, "eps": 1e-8, "eps_at": "outside", "singleton": "zero"}},
		"a preset without parameters": {"advantage: {preset: nemo_rl}", "leave_one_out", map[string]any{}},
		"parameters beside a preset": {"advantage: {preset: verl, params: {eps: 0.5}}", "std_normalised",
			map[string]any{"ddof": 1.0, "eps": 0.5, "eps_at": "outside", "singleton": "raw"}},
		"the same estimator beside it": {"advantage: {preset: tinker, estimator: mean_centred}",
			"mean_centred", map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := opening.ReadRunFile(clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"),
				"policy: p\nendpoint: builtin\n"+c.text+"\n"))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			if a := f.Advantage; a.Estimator != c.estimator || !maps.Equal(a.Params, c.params) || a.Preset != "" {
				t.Errorf("%s: %+v, want %s %v", name, a, c.estimator, c.params)
			}
		})
	}
}

// TestSamplingOfARunFile: what a file does not name is neutral, and null leaves it to the
// server, also after the log.
func TestSamplingOfARunFile(t *testing.T) {
	neutral := runfile.NeutralSampling()
	for text, want := range map[string]func(*runfile.Sampling){
		"":                                 func(*runfile.Sampling) {},
		"sampling: {temperature: 0.5}":     func(s *runfile.Sampling) { s.Temperature = 0.5 },
		"sampling: {top_p: 0.9, top_k: 5}": func(s *runfile.Sampling) { s.TopP, s.TopK = new(0.9), new(5) },
		"sampling: {top_p: null, stop: [], chat_template_kwargs: {enable_thinking: false}}": func(s *runfile.Sampling) {
			s.TopP, s.Stop, s.ChatTemplateKwargs = nil, []string{}, map[string]any{"enable_thinking": false}
		},
	} {
		t.Run(text, func(t *testing.T) {
			f, err := opening.ReadRunFile(clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"),
				"policy: p\nendpoint: builtin\n"+text+"\n"))
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			wanted := neutral
			want(&wanted)
			recorded, err := json.Marshal(f.RunConfig)
			if err != nil {
				t.Fatal(err)
			}
			var again runfile.RunConfig
			if err := json.Unmarshal(recorded, &again); err != nil || !reflect.DeepEqual(again.Sampling, wanted) ||
				again.SystemPrompt != runfile.DefaultSystemPrompt {
				t.Errorf("%q is recorded as %+v, want %+v: %v", text, again.Sampling, wanted, err)
			}
		})
	}
}

func TestMistakesInTheAdvantageOfARunFile(t *testing.T) {
	dir := clitest.FilledPlane(t, nil)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown estimator": {"advantage: {estimator: ppo}", []string{"run x", `"ppo"`, "mean_centred"}},
		"unknown parameter": {"advantage: {estimator: rloo, params: {eps: 1}}",
			[]string{"run x", "rloo", `"eps"`, "takes none"}},
		"wrong value": {"advantage: {estimator: std_normalised, params: {eps_at: nowhere}}",
			[]string{"eps_at", "nowhere", "outside"}},
		"unknown preset": {"advantage: {preset: grpo}",
			[]string{"run.yaml", "advantage.preset", `"grpo"`, "prime_rl"}},
		"a preset and another one": {"advantage: {preset: verl, estimator: rloo}",
			[]string{"run.yaml", "verl", "std_normalised", `"rloo"`}},
		"a parameter not its own": {"advantage: {preset: prime_rl, params: {eps: 1}}",
			[]string{"mean_centred", `"eps"`}},
		"a mistyped key":             {"advantage: {presets: verl}", []string{"run.yaml", "presets"}},
		"a parameter without a name": {"advantage: {estimator: rloo, params: {\"\": 1}}", []string{`""`}},
	} {
		t.Run(name, func(t *testing.T) {
			file := clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"),
				"policy: p\nendpoint: builtin\n"+c.text+"\n")
			_, err := clitest.Run(t, New, "run", "open", "x", "--dir", dir, "--file", file)
			if err == nil {
				t.Errorf("%s: it went well", name)
				return
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %q: %v", name, part, err)
				}
			}
		})
	}
}

// TestExampleRunFile: what examples/run.yaml only mentions can be written too,
// and it mentions every key.
func TestExampleRunFile(t *testing.T) {
	example, err := os.ReadFile("../../examples/run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mentioned := regexp.MustCompile(`(?m)^( *)# ((?:- |  )?[a-z_]+: |  - {name)`).ReplaceAllString(string(example),
		"$1$2")
	// each goes without some of the others
	mentioned = regexp.MustCompile(
		`(?m)^ *(preset|external|environment|agent|conversations|vision): .*\n`).ReplaceAllString(mentioned, "")
	training, evaluation, _ := strings.Cut(mentioned, "\n# An evaluation is")
	check := func(text string) opening.RunFile {
		f, err := opening.ReadRunFile(clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"), text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		f.Tasks = []runfile.TaskSpec{{Name: "t", Workdir: "/app", Snapshot: anyRef, Tests: anyRef,
			Verifier: runfile.VerifierSeparate}}
		if err := f.Check(); err != nil {
			t.Error(err)
		}
		return f
	}
	f := check(training)
	if e := check("policy: my-model\nendpoint: builtin\n#" + evaluation); e.Epochs != 1 || e.InFlight == 0 ||
		e.PolicyVersion == nil {
		t.Errorf("not all that is mentioned of evaluations was read: %+v", e.RunConfig)
	}
	if f.Curriculum == nil || f.Shaping.SoftOverlong == nil || f.Filters.PassRate == nil || len(f.Feeds) != 2 ||
		f.Feeds[0].MicroBatch == nil {
		t.Errorf("not all that is mentioned was read: %+v", f.RunConfig)
	}
	for field := range reflect.TypeFor[runfile.RunConfig]().Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if key != "-" && !regexp.MustCompile(`(?m)^(# )?`+key+`:`).Match(example) {
			t.Errorf("examples/run.yaml does not mention %s", key)
		}
	}
}

var anyRef = storage.Ref{Key: storage.BlobKey(strings.Repeat("0", 64)), SHA256: strings.Repeat("0", 64), Size: 1}
