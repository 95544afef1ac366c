package tasks

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Verdicts on a key of task.toml, as docs/guide/task-fields.md says them.
const (
	honouredKey = "honoured"
	refusedKey  = "refused"       // an Unsupported with its name
	warnedKey   = "warned of"     // a warning with its name
	noAccount   = "of no account" // it says nothing about agent or reward, or is fulfilled by there being nothing to do
)

// fields are all keys of schema 1.4, each with settings that it must be noticed in.
var fields = []struct{ key, verdict, text string }{
	{"schema_version", refusedKey, `schema_version = "2.0"`},
	{"version", noAccount, `version = "1.0"`},
	{"source", noAccount, `source = "https://example.com"`},
	{"multi_step_reward_strategy", honouredKey, "multi_step_reward_strategy = \"final\"\n[[steps]]\nname = \"one\""},
	{"artifacts", refusedKey, `artifacts = ["/var/lib/x"]`},
	{"artifacts.service", refusedKey, `artifacts = [{ source = "a", service = "db" }]`},
	{"artifacts.destination", refusedKey, `artifacts = [{ source = "a", destination = "b" }]`},
	{"artifacts.exclude", warnedKey, `artifacts = [{ source = "a", exclude = ["b"] }]`},
	{"task.name", noAccount, "[task]\nname = \"org/other\""},
	{"task.version", noAccount, "[task]\nversion = \"1\""},
	{"task.description", noAccount, "[task]\ndescription = \"x\""},
	{"task.authors", noAccount, "[task]\nauthors = [{ name = \"A\" }]"},
	{"task.keywords", honouredKey, "[task]\nkeywords = [\"a\"]"},
	{"metadata.difficulty", honouredKey, "[metadata]\ndifficulty = \"hard\""},
	{"metadata.tags", honouredKey, "[metadata]\ntags = [\"a\"]"},
	{"metadata.rondo.snapshot", honouredKey, "[metadata.rondo]\nsnapshot = \"environment/repo\""},
	{"metadata.rondo.toolchains", honouredKey, "[metadata.rondo]\ntoolchains = [\"go\"]"},
	{"metadata.rondo.modules", honouredKey, "[metadata.rondo]\ntoolchains = [\"go\"]\nmodules = \"environment/repo\""},
	{"metadata.rondo.labels", honouredKey, "[metadata.rondo]\nlabels = [\"a\"]"},
	{"metadata.rondo.image", honouredKey, "[metadata.rondo]\nimage = true\n[environment]\ndocker_image = \"a\""},
	{"metadata.rondo.protected", honouredKey, "[metadata.rondo]\nprotected = [\"a\"]"},
	{"metadata.rondo.changes", honouredKey, "[metadata.rondo]\nchanges = [\"src/**\"]"},
	{"metadata.rondo.verifier", honouredKey, "[metadata.rondo]\nverifier = \"separate\""},
	{"metadata.rondo.transcript", honouredKey, "[metadata.rondo]\ntranscript = true"},
	{"metadata.rondo.deterministic", honouredKey, "[metadata.rondo]\ndeterministic = [\"make check\"]"},
	{"metadata.rondo.repository", honouredKey, "[metadata.rondo]\nrepository = true"},
	{"agent.timeout_sec", honouredKey, "[agent]\ntimeout_sec = 5"},
	{"agent.user", refusedKey, "[agent]\nuser = \"a\""},
	{"agent.network_mode", honouredKey, "[agent]\nnetwork_mode = \"no-network\""},
	{"agent.allowed_hosts", honouredKey, "[agent]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"a.com\"]"},
	{"verifier.timeout_sec", honouredKey, "[verifier]\ntimeout_sec = 5"},
	{"verifier.env", honouredKey, "[verifier.env]\nA = \"b\""},
	{"verifier.user", refusedKey, "[verifier]\nuser = 1000"},
	{"verifier.environment_mode", noAccount, "[verifier]\nenvironment_mode = \"separate\""},
	{"verifier.environment", refusedKey, "[verifier.environment]\ngpus = 1"},
	{"verifier.environment.env", honouredKey, "[verifier.environment.env]\nA = \"b\""},
	{"verifier.environment.memory_mb", warnedKey, "[verifier.environment]\nmemory_mb = 9"},
	{"verifier.environment.cpus", warnedKey, "[verifier.environment]\ncpus = 9"},
	{"verifier.environment.storage_mb", warnedKey, "[verifier.environment]\nstorage_mb = 9"},
	{"verifier.environment.network_mode", warnedKey, "[verifier.environment]\nnetwork_mode = \"public\""},
	{"verifier.environment.build_timeout_sec", noAccount, "[verifier.environment]\nbuild_timeout_sec = 9"},
	{"verifier.collect.command", honouredKey, "[[verifier.collect]]\ncommand = \"a\""},
	{"verifier.collect.service", refusedKey, "[[verifier.collect]]\ncommand = \"a\"\nservice = \"db\""},
	{"verifier.collect.timeout_sec", honouredKey, "[[verifier.collect]]\ncommand = \"a\"\ntimeout_sec = 1"},
	{"verifier.collect.user", refusedKey, "[[verifier.collect]]\ncommand = \"a\"\nuser = \"a\""},
	{"verifier.network_mode", refusedKey, "[verifier]\nnetwork_mode = \"allowlist\""},
	{"verifier.allowed_hosts", refusedKey, "[verifier]\nallowed_hosts = [\"a.com\"]"},
	{"solution.env", honouredKey, "[solution.env]\nA = \"b\""},
	{"environment.build_timeout_sec", noAccount, "[environment]\nbuild_timeout_sec = 5"},
	{"environment.docker_image", honouredKey, "[environment]\ndocker_image = \"a\"\n[metadata.rondo]\nimage = true"},
	{"environment.os", refusedKey, "[environment]\nos = \"windows\""},
	{"environment.workdir", honouredKey, "[environment]\nworkdir = \"/work\""},
	{"environment.env", honouredKey, "[environment.env]\nA = \"b\""},
	{"environment.cpus", honouredKey, "[environment]\ncpus = 2"},
	{"environment.memory_mb", honouredKey, "[environment]\nmemory_mb = 9"},
	{"environment.memory", honouredKey, "[environment]\nmemory = \"2G\""},
	{"environment.storage_mb", honouredKey, "[environment]\nstorage_mb = 200"},
	{"environment.storage", honouredKey, "[environment]\nstorage = \"200M\""},
	{"environment.gpus", refusedKey, "[environment]\ngpus = 1"},
	{"environment.gpu_types", refusedKey, "[environment]\ngpu_types = [\"a\"]"},
	{"environment.tpu", refusedKey, "[environment.tpu]\ntype = \"a\""},
	{"environment.allow_internet", warnedKey, "[environment]\nallow_internet = true"},
	{"environment.mcp_servers", refusedKey, "[[environment.mcp_servers]]\nname = \"a\""},
	{"environment.skills_dir", warnedKey, "[environment]\nskills_dir = \"/a\""},
	{"environment.healthcheck.command", honouredKey, "[environment.healthcheck]\ncommand = \"a\""},
	{"environment.healthcheck.timeout_sec", honouredKey, "[environment.healthcheck]\ncommand = \"a\"\ntimeout_sec = 1"},
	{"environment.healthcheck.interval_sec", noAccount, "[environment.healthcheck]\ncommand = \"a\"\ninterval_sec = 1"},
	{"environment.healthcheck.start_period_sec", noAccount,
		"[environment.healthcheck]\ncommand = \"a\"\nstart_period_sec = 1"},
	{"environment.healthcheck.start_interval_sec", noAccount,
		"[environment.healthcheck]\ncommand = \"a\"\nstart_interval_sec = 1"},
	{"environment.healthcheck.retries", noAccount, "[environment.healthcheck]\ncommand = \"a\"\nretries = 1"},
	{"environment.network_mode", honouredKey, "[environment]\nnetwork_mode = \"no-network\""},
	{"environment.allowed_hosts", honouredKey,
		"[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"a.com\"]"},
	{"steps.name", honouredKey, "[[steps]]\nname = \"one\""},
	{"steps.min_reward", honouredKey, "[[steps]]\nname = \"one\"\nmin_reward = 0.5"},
	{"steps.healthcheck.command", honouredKey, "[[steps]]\nname = \"one\"\n[steps.healthcheck]\ncommand = \"a\""},
	{"steps.artifacts", refusedKey, "[[steps]]\nname = \"one\"\nartifacts = [\"/var/lib/x\"]"},
	{"steps.agent.timeout_sec", honouredKey, "[[steps]]\nname = \"one\"\n[steps.agent]\ntimeout_sec = 5"},
	{"steps.agent.user", refusedKey, "[[steps]]\nname = \"one\"\n[steps.agent]\nuser = \"a\""},
	{"steps.agent.network_mode", refusedKey, "[[steps]]\nname = \"one\"\n[steps.agent]\nnetwork_mode = \"allowlist\""},
	{"steps.agent.allowed_hosts", refusedKey, "[[steps]]\nname = \"one\"\n[steps.agent]\nallowed_hosts = [\"a.com\"]"},
	{"steps.verifier.timeout_sec", honouredKey, "[[steps]]\nname = \"one\"\n[steps.verifier]\ntimeout_sec = 5"},
	{"steps.verifier.env", honouredKey, "[[steps]]\nname = \"one\"\n[steps.verifier.env]\nA = \"b\""},
	{"steps.verifier.user", refusedKey, "[[steps]]\nname = \"one\"\n[steps.verifier]\nuser = \"a\""},
	{"steps.verifier.environment", refusedKey, "[[steps]]\nname = \"one\"\n[steps.verifier.environment]\ngpus = 1"},
	{"steps.verifier.collect.command", honouredKey,
		"[[steps]]\nname = \"one\"\n[[steps.verifier.collect]]\ncommand = \"a\""},
	{"steps.verifier.collect.timeout_sec", honouredKey,
		"[[steps]]\nname = \"one\"\n[[steps.verifier.collect]]\ncommand = \"a\"\ntimeout_sec = 1"},
	{"steps.verifier.collect.service", refusedKey,
		"[[steps]]\nname = \"one\"\n[[steps.verifier.collect]]\ncommand = \"a\"\nservice = \"db\""},
	{"steps.verifier.collect.user", refusedKey,
		"[[steps]]\nname = \"one\"\n[[steps.verifier.collect]]\ncommand = \"a\"\nuser = \"a\""},
	{"steps.verifier.environment_mode", noAccount,
		"[[steps]]\nname = \"one\"\n[steps.verifier]\nenvironment_mode = \"separate\""},
	{"steps.verifier.network_mode", refusedKey,
		"[[steps]]\nname = \"one\"\n[steps.verifier]\nnetwork_mode = \"allowlist\""},
	{"steps.verifier.allowed_hosts", refusedKey,
		"[[steps]]\nname = \"one\"\n[steps.verifier]\nallowed_hosts = [\"a.com\"]"},
}

// keysOf are the keys that config declares, as they stand in task.toml.
func keysOf(t reflect.Type, prefix string) (keys []string) {
	for f := range t.Fields() {
		f := f
		tag, inner := f.Tag.Get("toml"), f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		switch {
		case f.Anonymous:
			keys = append(keys, keysOf(inner, prefix)...)
		case tag == "":
		case inner.Kind() == reflect.Struct:
			keys = append(keys, keysOf(inner, prefix+tag+".")...)
		default:
			keys = append(keys, prefix+tag)
		}
	}
	return keys
}

// sameInSteps are keys of a step that are read by the code that reads the task's own.
var sameInSteps = []string{
	"steps.healthcheck.timeout_sec", "steps.healthcheck.interval_sec", "steps.healthcheck.start_period_sec",
	"steps.healthcheck.start_interval_sec", "steps.healthcheck.retries",
}

// TestNoFieldIsIgnored goes through all keys of schema 1.4: each is honoured, or refused or
// warned of by its name, and stands in docs/guide/task-fields.md with that verdict. What is of no
// account is known to be so.
func TestNoFieldIsIgnored(t *testing.T) {
	docs, err := os.ReadFile("../docs/guide/task-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, f := range fields {
		listed = append(listed, f.key)
		if row := "| `" + f.key + "` | " + f.verdict + " |"; !strings.Contains(string(docs), row) {
			t.Errorf("docs/guide/task-fields.md has no row %q", row)
		}
		task, err := loadSettings(f.text)
		if f.verdict == refusedKey {
			var u *Unsupported
			if !errors.As(err, &u) || !strings.HasPrefix(f.key, u.Field) && !strings.HasPrefix(u.Field, f.key) {
				t.Errorf("%s: %v, want it refused by its name", f.key, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f.key, err)
			continue
		}
		warned := slices.ContainsFunc(task.Warnings, func(w string) bool { return strings.Contains(w, f.key) })
		if warned != (f.verdict == warnedKey) {
			t.Errorf("%s: warnings %q", f.key, task.Warnings)
		}
		if same := reflect.DeepEqual(plain(task), plain(without(f.key, f.text))); same == (f.verdict == honouredKey) {
			t.Errorf("%s is %s, but whether it is set changes the task: %v", f.key, f.verdict, !same)
		}
	}
	for _, key := range keysOf(reflect.TypeFor[config](), "") {
		if !slices.Contains(listed, key) && !slices.Contains(sameInSteps, key) {
			t.Errorf("%s is declared, but nothing says what becomes of it", key)
		}
	}
	task, err := loadSettings("new_in_2027 = 1\n[metadata]\nauthor_name = \"A\"\n[agent]\nspeed = 3")
	if err != nil || len(task.Warnings) != 2 || !strings.Contains(strings.Join(task.Warnings, "\n"), `"agent.speed"`) {
		t.Errorf("unknown keys: %v, %q", err, task.Warnings)
	}
	if _, err := loadSettings("[metadata.rondo]\nverifer = \"separate\""); err == nil ||
		!strings.Contains(err.Error(), `"metadata.rondo.verifer": [metadata.rondo] has no such key`) {
		t.Errorf("an unknown key of Rondo's own table: %v", err)
	}
}

// loadSettings loads a sound task with a task.toml, and with the folder of the step that it has.
func loadSettings(text string) (*Task, error) {
	changes := settings(text)
	if strings.Contains(text, "[[steps]]") {
		changes["t/steps/one/instruction.md"] = file("First.")
	}
	loaded, err := LoadPack(with(changes))
	if err != nil {
		return nil, err
	}
	return loaded[0], nil
}

// without is the task without a key: its line left out, or where that leaves nothing that
// loads, no settings at all.
func without(key, text string) *Task {
	name := key[strings.LastIndex(key, ".")+1:]
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, name+" =") {
			kept = append(kept, line)
		}
	}
	if rest := strings.Join(kept, ""); rest != text {
		if task, err := loadSettings(rest); err == nil {
			return task
		}
	}
	task, err := loadSettings("")
	if err != nil {
		panic(err)
	}
	return task
}

// plain is a task without what no two loads have in common; its digest stands for its files.
func plain(t *Task) Task {
	p := *t
	p.Snapshot, p.Tests, p.Solution, p.Modules, p.config, p.Warnings = nil, nil, nil, nil, nil, nil
	p.Stages = slices.Clone(p.Stages)
	for i := range p.Stages {
		p.Stages[i].Tests, p.Stages[i].Solution = nil, nil
	}
	return p
}
