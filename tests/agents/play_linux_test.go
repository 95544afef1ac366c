package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/demo/packs"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/tests/plane"
)

// repair is how a task of the sample pack is solved: one text of one file is replaced.
type repair struct{ task, told, file, old, repaired string }

// repairs are those of the three tasks that each agent plays; told is of the instruction.
var repairs = []repair{
	{"shell-slugify", "drops the last word of titles", "lib/shorten.sh", `"${#longer}" -ge "$limit"`,
		`"${#longer}" -gt "$limit"`},
	{"shell-pack", "cannot handle file names with spaces", "pack.sh", `print_list $@`, `print_list "$@"`},
	{"shell-leapday", "the calendar on my wall", "calendar.sh", `$(($1 % 100)) -eq 0`, `$(($1 % 100)) -ne 0`},
}

// player is an agent whose model is scripted.
type player struct {
	// says are its model's answers in a conversation, one after the other. An answer that calls no
	// tool has words alone.
	says []func(r repair) (words, tool string, arguments map[string]any)
	// streamed: it asks for streams, and for nothing else.
	streamed bool
	// title begins what it asks a title with; "" of one that asks for none.
	title string
}

// call is an answer that calls a tool.
func call(tool string, arguments func(r repair) map[string]any) func(repair) (string, string, map[string]any) {
	return func(r repair) (string, string, map[string]any) { return "I shall.", tool, arguments(r) }
}

// shell is an answer that runs a command by a tool, with further arguments beside the command's.
func shell(tool, argument, command string, more map[string]any) func(repair) (string, string, map[string]any) {
	return call(tool, func(r repair) map[string]any {
		all := map[string]any{argument: strings.NewReplacer("FILE", r.file, "OLD", quoted(r.old),
			"NEW", quoted(r.repaired)).Replace(command)}
		for name, value := range more {
			all[name] = value
		}
		return all
	})
}

// quoted is a text as sed has it between single quotation marks, on either side.
func quoted(text string) string {
	return strings.NewReplacer("$", `\$`, "/", `\/`, "*", `\*`, "[", `\[`, "&", `\&`).Replace(text)
}

// Commands of the scripted models.
const (
	look   = `cat FILE`
	change = `sed -i 's/OLD/NEW/' FILE && sh test.sh`
	test   = `sh test.sh`
)

func done(repair) (string, string, map[string]any) { return "It is repaired.", "", nil }

// unplayed are the shipped agents that are installed and started, and no more, and why.
var unplayed = map[string]string{
	"openhands": "no model is scripted for it, since nobody has seen yet what it asks: it takes long to install",
}

// players are the shipped agents that play.
var players = map[string]player{
	"codex": {streamed: true, says: []func(repair) (string, string, map[string]any){
		shell("exec_command", "cmd", look, nil), shell("exec_command", "cmd", change, nil), done,
	}},
	"qwen-code": {streamed: true, says: []func(repair) (string, string, map[string]any){
		shell("run_shell_command", "command", look, map[string]any{"is_background": false, "description": "look"}),
		call("read_file", func(r repair) map[string]any { return map[string]any{"file_path": "/app/" + r.file} }),
		call("edit", func(r repair) map[string]any {
			return map[string]any{"file_path": "/app/" + r.file, "old_string": r.old, "new_string": r.repaired}
		}),
		shell("run_shell_command", "command", test, map[string]any{"is_background": false, "description": "test"}),
		done,
	}},
	"claude-code": {streamed: true, says: []func(repair) (string, string, map[string]any){
		shell("Bash", "command", look, nil),
		call("Read", func(r repair) map[string]any { return map[string]any{"file_path": "/app/" + r.file} }),
		call("Edit", func(r repair) map[string]any {
			return map[string]any{"file_path": "/app/" + r.file, "old_string": r.old, "new_string": r.repaired}
		}),
		shell("Bash", "command", test, nil), done,
	}},
	"opencode": {streamed: true, title: "Generate a title", says: []func(repair) (string, string, map[string]any){
		shell("bash", "command", look, map[string]any{"description": "Looks"}),
		shell("bash", "command", change, map[string]any{"description": "Repairs"}), done,
	}},
	"mini-swe-agent": {says: []func(repair) (string, string, map[string]any){
		shell("bash", "command", look, nil), shell("bash", "command", change, nil),
		shell("bash", "command", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", nil),
	}},
	"aider": {streamed: true, says: []func(repair) (string, string, map[string]any){
		func(r repair) (string, string, map[string]any) {
			return fmt.Sprintf("It is repaired.\n\n%s\n```\n%s\n```", r.file, strings.TrimSuffix(r.whole(), "\n")),
				"", nil
		},
	}},
}

// whole is the repaired file.
func (r repair) whole() string {
	text, err := fs.ReadFile(packs.Sample(), path.Join(r.task, "environment/repo", r.file))
	if err != nil {
		panic(err) // the pack is of this module
	}
	return strings.Replace(string(text), r.old, r.repaired, 1)
}

// answer is what the model samples behind a prompt: it knows the task and
// how often it has answered.
func (p player) answer(t *testing.T, shape tokenstest.Template, prompt string) string {
	think := "<think>\nWhat is wrong here?\n</think>\n\n"
	if p.title != "" && strings.Contains(prompt, p.title) {
		return think + "A title" + shape.Stop[1]
	}
	at := slices.IndexFunc(repairs, func(r repair) bool { return strings.Contains(prompt, r.told) })
	n := -1
	if at >= 0 { // examples of answers may stand before the instruction
		_, behind, _ := strings.Cut(prompt, repairs[at].told)
		n = strings.Count(behind, shape.Assistant) - 1
	}
	if n < 0 || n >= len(p.says) {
		t.Errorf("answer %d of the model is asked for, behind %.3000q", n, prompt)
		return think + "I am lost." + shape.Stop[1]
	}
	words, tool, arguments := p.says[n](repairs[at])
	if tool == "" {
		return think + words + shape.Stop[1]
	}
	text, err := json.Marshal(map[string]any{"name": tool, "arguments": arguments})
	if err != nil {
		t.Error(err)
	}
	return think + words + shape.Calls[0] + string(text) + shape.Calls[1] + shape.Stop[0]
}

// heard counts what agents asked of their model.
type heard struct {
	mu              sync.Mutex
	streamed, whole int
}

// way is an agent's way to its model, whose requests are counted.
type way struct {
	toolrunner.Model
	heard *heard
}

// ServeHTTP implements http.Handler.
func (w way) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Stream bool `json:"stream"`
	}
	if err == nil && json.Unmarshal(body, &asked) == nil {
		w.heard.mu.Lock()
		if asked.Stream {
			w.heard.streamed++
		} else {
			w.heard.whole++
		}
		w.heard.mu.Unlock()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.Model.ServeHTTP(to, r)
}

// play has an agent of the log's store play three tasks of the sample pack, but for one of
// unplayed: each is solved, the samples are its conversations, and each turn is recorded behind the
// tokens that the server was asked with.
func play(t *testing.T, log *eventlog.Log, name, layer string) {
	t.Helper()
	if why, is := unplayed[name]; is {
		t.Logf("%s plays no task: %s", name, why)
		return
	}
	p, scripted := players[name]
	if !scripted {
		t.Fatalf("no model is scripted for %s: add it to players", name)
	}
	s := tokenstest.New(t, "Qwen3", nil)
	s.Say = func(prompt string) (string, string) { return p.answer(t, s.Template, prompt), "" }
	numberCalls(s)
	cfg := opening.RunFile{RunConfig: servicetest.Config()}
	cfg.Endpoint, cfg.EndpointAPI, cfg.Tasks = s.URL+"/v1", runfile.APITokens, sampleTasks(t, log.Store())
	cfg.GroupSize, cfg.InFlight, cfg.Epochs, cfg.Feeds, cfg.SystemPrompt = 1, 2, 1, nil, ""
	cfg.MinVerifier, cfg.Limits.Tries = runfile.VerifierSeparate, 2
	cfg.Agent = &runfile.Agent{Layer: layer}
	for i := range cfg.Tasks {
		cfg.Tasks[i].MemoryMB = 2048 // half a gigabyte, which tasks have that state none, is too little for Node
	}
	if err := cfg.TakeAgent(t.Context(), log.Store()); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	plane.Start(t, log, "r", cfg.RunConfig, func(ctx context.Context, env pipeline.Env) error {
		return generator.Run(ctx, env, servicetest.Fleet(t, env, nil), generator.DefaultOptions())
	})
	asked := startAgents(t, log)
	for n := range repairs { // each has its time on a busy machine
		servicetest.Wait(t, log, "r", events.WorkspaceAnsweredType, "*", n+1)
	}
	servicetest.Wait(t, log, "r", events.RunClosedType, "r", 1)
	requests := map[string]tokenstest.Turn{}
	for _, turn := range s.Turns() {
		requests[fmt.Sprint(turn.Prompt, turn.Sampled)] = turn
	}
	turns := 0
	for i := range repairs {
		turns += p.check(t, log, fmt.Sprintf("g%06d-0", i+1), s, requests)
	}
	if len(requests) > 0 {
		t.Errorf("%d requests of the server are no turns of a rollout", len(requests))
	}
	want := heard{whole: turns}
	if p.streamed {
		want = heard{streamed: turns}
	}
	asked.mu.Lock()
	defer asked.mu.Unlock()
	if asked.streamed != want.streamed || asked.whole != want.whole {
		t.Errorf("%d turns: %d requests were for streams, %d for whole answers", turns, asked.streamed, asked.whole)
	}
	plane.Prove(t, log, "r")
}

// check holds a rollout to what its server was asked and sampled, and takes that out of requests.
func (p player) check(t *testing.T, log *eventlog.Log, id string, s *tokenstest.Server,
	requests map[string]tokenstest.Turn) (turns int) {
	t.Helper()
	r, err := log.Rollout(t.Context(), "r", id)
	if err != nil {
		t.Fatal(err)
	}
	if r.Scored == nil || r.Scored.Reward != 1 || r.Finished.StopReason != events.StopFinished || r.Finished.TextOnly {
		t.Errorf("%s: scored %+v, failed %+v, finished %+v: %s", id, r.Scored, r.Failed, r.Finished, output(t, log, &r))
		return len(r.Turns)
	}
	data, err := storage.GetBlob(t.Context(), log.Store(), r.Finished.Trajectory)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := storage.DecodeTrajectory(data)
	if err != nil {
		t.Fatal(err)
	}
	conversations := 1
	if p.title != "" {
		conversations++
	}
	samples := tr.Samples()
	if len(samples) != conversations {
		t.Errorf("%s: %d samples of %d conversations: %s", id, len(samples), conversations, causes(&r))
	}
	for _, sample := range samples {
		for _, span := range sample.Turns {
			prompt, sampled := sample.Tokens[:span.Start], sample.Tokens[span.Start:span.Start+span.Length]
			key := fmt.Sprint(prompt, sampled)
			if _, known := requests[key]; !known {
				t.Errorf("%s: turn %d stands behind %q, which the server was not asked with", id, span.Turn,
					s.Tokenizer.Decode(prompt))
			}
			delete(requests, key)
			turns++
		}
	}
	if turns != len(r.Turns) {
		t.Errorf("%s: %d turns, and %d in samples", id, len(r.Turns), turns)
	}
	return turns
}

// causes says why samples of a rollout began.
func causes(r *events.Rollout) string {
	var all []string
	for _, turn := range r.Turns {
		if turn.NewSegment {
			all = append(all, fmt.Sprintf("turn %d: %q", turn.Turn, turn.SegmentCause))
		}
	}
	return strings.Join(all, ", ")
}

// output is what an agent wrote, and how it ended.
func output(t *testing.T, log *eventlog.Log, r *events.Rollout) string {
	t.Helper()
	if len(r.Answers) == 0 {
		return "it did not end"
	}
	answer := r.Answers[0]
	out, err := answer.Output.Get(t.Context(), log.Store())
	if err != nil {
		t.Fatal(err)
	}
	said, err := answer.Errors.Get(t.Context(), log.Store())
	if err != nil {
		t.Fatal(err)
	}
	code := -1 // it was lost
	if answer.ExitCode != nil {
		code = *answer.ExitCode
	}
	return fmt.Sprintf("the agent ended with %d, %+v: %.4000s%.4000s", code, answer.Agent, out, said)
}

// sampleTasks are the tasks of repairs.
func sampleTasks(t *testing.T, store storage.Store) []runfile.TaskSpec {
	t.Helper()
	all, err := tasks.LoadPack(packs.Sample())
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(task *tasks.Task) bool {
		return !slices.ContainsFunc(repairs, func(r repair) bool { return strings.HasSuffix(task.Name, r.task) })
	})
	specs, err := opening.PackTasks(t.Context(), store, all, runfile.DefaultRunConfig().Limits)
	if err != nil || len(specs) != len(repairs) {
		t.Fatalf("%d tasks, %v", len(specs), err)
	}
	return specs
}

// startAgents starts a tool runner that starts agents, and counts what these ask.
func startAgents(t *testing.T, log *eventlog.Log) *heard {
	t.Helper()
	env := servicetest.Env(t, log)
	g, err := gateway.New(env, servicetest.Fleet(t, env, nil), gateway.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	layers, err := agents.OpenCache(filepath.Join(t.TempDir(), "layers"), agents.CacheBytes)
	if err != nil {
		t.Fatal(err)
	}
	asked := &heard{}
	opts := toolrunner.Options{Slots: 2, Pool: runfile.DefaultRunConfig().Pool, Layers: layers,
		Model: func(run, rollout string) toolrunner.Model { return way{g.Agent(run, rollout), asked} }}
	servicetest.Start(t, func(ctx context.Context) error { return toolrunner.Run(ctx, env, opts) })
	return asked
}

// numberCalls gives each call an id of its own, as servers do.
func numberCalls(s *tokenstest.Server) {
	var mu sync.Mutex
	n := 0
	s.Change = func(_ string, answer map[string]any) {
		choices, _ := answer["choices"].([]any)
		for _, choice := range choices {
			message, _ := choice.(map[string]any)["message"].(tokenstest.Message)
			for i := range message.ToolCalls {
				mu.Lock()
				n++
				message.ToolCalls[i].ID = fmt.Sprintf("call_%08d", n)
				mu.Unlock()
			}
		}
	}
}
