package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// toy is a repository in memory whose test command is a function of its files: it gives the policy
// something to repair without a shell, in microseconds.
type toy struct {
	instruction string
	files       map[string]string
	check       func(files map[string]string) (output string, ok bool)
	score       func(files map[string]string) float64 // nil: 1 where the check passes, else 0
}

// toys are three programs with one fault each. "sh test.sh" says what is
// expected, as test programs do.
func toys() []toy {
	expect := func(file string, line string, says string) func(map[string]string) (string, bool) {
		return func(files map[string]string) (string, bool) {
			if strings.Contains(files[file], line) {
				return "ok 1 - " + says + "\nok 2 - usage\n", true
			}
			return "not ok 1 - " + says + "\nok 2 - usage\n", false
		}
	}
	return []toy{
		{
			"Too many lines are printed: `sh test.sh` shows it.",
			map[string]string{"top.sh": "#!/bin/sh\nlimit=$1\nif [ $limit -gt 9 ]; then\n  limit=9\nfi\nhead -n 4 | sort -r\n",
				"test.sh": "# tests\n", "README.md": "Prints a few lines.\n"},
			expect("top.sh", "head -n 3 ", "three lines"),
			nil,
		},
		{
			"The biggest is missed; run `sh test.sh`.",
			map[string]string{"lib/max.sh": "max() {\n  best=$1\n  for n in \"$@\"; do\n    if [ $n -lt $best ]; then\n      best=$n\n    fi\n  done\n  echo $best\n}\n",
				"run.sh": ". lib/max.sh\nmax \"$@\"\n", "test.sh": "# tests\n"},
			expect("lib/max.sh", "$n -gt $best", "biggest of three"),
			nil,
		},
		{
			"Sum is wrong.",
			map[string]string{"sum.go": "package sum\n\nfunc Sum(list []int) int {\n\ttotal := 0\n\tfor _, n := range list {\n\t\ttotal -= n\n\t}\n\treturn total\n}\n",
				"test.sh": "# tests\n"},
			expect("sum.go", "total += n", "sum of three"),
			nil,
		},
	}
}

var toyTools = []string{"read_file", "search_replace", "grep", "list_dir", "run_terminal_cmd"}

// episode is one rollout in a toy.
type episode struct {
	messages []Message
	sample   TrainingSample
	reward   float64
}

// play runs the policy on a toy. It fails the test when a prompt does not extend what was sampled.
func (y toy) play(t *testing.T, m *Model, seed uint64, turns int) *episode {
	t.Helper()
	files := maps.Clone(y.files)
	e := &episode{messages: []Message{{Role: "system", Content: "You repair programs."},
		{Role: "user", Content: y.instruction}}}
	for range turns {
		a, err := m.Generate(Prompt{Tools: toyTools, Messages: e.messages, Temperature: 1, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		e.record(t, a)
		e.messages = append(e.messages, Message{Role: "assistant", Content: a.Content, ToolCalls: a.ToolCalls})
		for _, call := range a.ToolCalls {
			e.messages = append(e.messages, Message{Role: "tool", ToolCallID: call.ID, Content: y.tool(files, call)})
		}
		if len(a.ToolCalls) == 0 {
			break
		}
	}
	if y.score != nil {
		e.reward = y.score(files)
	} else if _, ok := y.check(files); ok {
		e.reward = 1
	}
	return e
}

func (e *episode) record(t *testing.T, a *Answer) {
	t.Helper()
	s := &e.sample
	if len(a.PromptTokenIDs) < len(s.Tokens) || !slices.Equal(a.PromptTokenIDs[:len(s.Tokens)], s.Tokens) {
		t.Fatal("the prompt does not extend the tokens so far")
	}
	if len(a.TokenIDs) != len(a.Logprobs) {
		t.Fatalf("%d tokens, %d logprobs", len(a.TokenIDs), len(a.Logprobs))
	}
	added := len(a.PromptTokenIDs) - len(s.Tokens)
	s.Tokens = append(append(s.Tokens, a.PromptTokenIDs[len(s.Tokens):]...), a.TokenIDs...)
	s.LossMask = append(append(s.LossMask, make([]bool, added)...), slices.Repeat([]bool{true}, len(a.TokenIDs))...)
	s.SamplerLogprobs = append(append(s.SamplerLogprobs, make([]float32, added)...), a.Logprobs...)
}

func (e *episode) advantage(v float64) TrainingSample {
	e.sample.Advantages = make([]float32, len(e.sample.Tokens))
	for i, mine := range e.sample.LossMask {
		if mine {
			e.sample.Advantages[i] = float32(v)
		}
	}
	return e.sample
}

// tool answers in the forms of package sandbox/tools.
func (y toy) tool(files map[string]string, call ToolCall) string {
	var a arguments
	if err := json.Unmarshal([]byte(call.Function.Arguments), &a); err != nil {
		return "error: " + err.Error()
	}
	switch call.Function.Name {
	case "list_dir":
		return listing(files, text(a.TargetDirectory))
	case "read_file":
		var b strings.Builder
		for i, line := range splitLines(files[text(a.TargetFile)]) {
			fmt.Fprintf(&b, "%d|%s\n", i+1, line)
		}
		return b.String()
	case "search_replace":
		name := text(a.FilePath)
		if strings.Count(files[name], text(a.OldString)) != 1 {
			return "error: old_string is not unique"
		}
		files[name] = strings.Replace(files[name], text(a.OldString), text(a.NewString), 1)
		return "Edited " + name + ": 1 replaced."
	case "run_terminal_cmd":
		if !strings.HasSuffix(text(a.Command), "sh test.sh") {
			return "exit code: 0"
		}
		output, ok := y.check(files)
		if ok {
			return output + "exit code: 0"
		}
		return output + "exit code: 1"
	}
	return ""
}

func listing(files map[string]string, dir string) string {
	seen := map[string]bool{}
	for name := range files {
		rest, inside := strings.CutPrefix(name, dir+"/")
		if dir == "." {
			rest, inside = name, true
		}
		if first, _, deeper := strings.Cut(rest, "/"); inside && deeper {
			seen[first+"/"] = true
		} else if inside {
			seen[rest] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), "\n")
}

// trained is the mean reward of the first and of the last steps of a small training run. credit
// turns the rewards of a group into advantages.
func trained(t *testing.T, o Options, steps int, credit func(rewards []float64,
	random *rand.Rand) []float64) (first, last float64) {
	t.Helper()
	const size = 8
	trainer, err := NewTrainer(o)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var means []float64
	for step := range steps {
		var samples []TrainingSample
		sum := 0.0
		model := trainer.Model()
		for n, y := range toys() {
			episodes := make([]*episode, size)
			rewards := make([]float64, size)
			for i := range episodes {
				episodes[i] = y.play(t, model, uint64(step*1000+n*100+i), 6)
				rewards[i] = episodes[i].reward
				sum += rewards[i]
			}
			for i, v := range credit(rewards, random) {
				samples = append(samples, episodes[i].advantage(v))
			}
		}
		means = append(means, sum/float64(size*len(toys())))
		if _, err := trainer.Step(samples); err != nil {
			t.Fatal(err)
		}
	}
	mean := func(v []float64) (m float64) {
		for _, x := range v {
			m += x / float64(len(v))
		}
		return m
	}
	return mean(means[:2]), mean(means[steps-2:])
}

// centred is the group's baseline: reward minus mean.
func centred(rewards []float64, _ *rand.Rand) []float64 {
	mean := 0.0
	for _, r := range rewards {
		mean += r / float64(len(rewards))
	}
	out := make([]float64, len(rewards))
	for i, r := range rewards {
		out[i] = r - mean
	}
	return out
}
