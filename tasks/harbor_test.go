package tasks

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestHarborTasks: tasks as others write them lint with a clear verdict each, which names the field
// that cannot be honoured.
func TestHarborTasks(t *testing.T) {
	needSandbox(t)
	loaded, err := LoadDir("testdata/harbor")
	reports := map[string]Report{}
	for _, r := range Refused(err) {
		reports[r.Task] = r
	}
	for _, task := range loaded {
		reports[task.Name] = Lint(t.Context(), task, LintOptions{Repeats: 1})
		if strings.Contains(strings.ToLower(task.Instruction), "canary") {
			t.Errorf("%s: the agent reads the canary", task.Name)
		}
	}
	want := map[string]struct{ verdict, field, text string }{
		"old-spelling":   {VerdictInProcess, "", "environment.storage: 10240 MiB"},
		"current":        {VerdictInProcess, "", "environment.storage_mb: 4096 MiB"},
		"collects":       {VerdictInProcess, "", "verifier.environment.memory_mb"},
		"prepared":       {VerdictInProcess, "", "in process"},
		"public-network": {VerdictInProcess, "", "asks for a network"},
		"apt-get":        {VerdictUnsupported, "environment/Dockerfile", "line 2: RUN"},
		"image": {VerdictUnsupported, "environment.docker_image",
			"container image ghcr.io/example/image:20260801"},
		"compose":            {VerdictUnsupported, "environment/docker-compose.yaml", "compose"},
		"steps":              {VerdictInProcess, "", "in process"},
		"step-brings-files":  {VerdictUnsupported, "steps/only/workdir/setup.sh", "the first stage"},
		"gpu":                {VerdictUnsupported, "environment.gpus", "no GPU"},
		"allowlist":          {VerdictInProcess, "", "in process"},
		"mcp":                {VerdictUnsupported, "environment.mcp_servers", "can reach no server"},
		"separate-image":     {VerdictUnsupported, "tests/Dockerfile", "line 2: RUN"},
		"init-plain":         {VerdictInProcess, "", "the workspace is empty"},
		"init-steps":         {VerdictInProcess, "", "the workspace is empty"},
		"init-pytest":        {VerdictUnsupported, "tests/Dockerfile", "rondo tasks build"},
		"init-uvx":           {VerdictUnsupported, "environment/Dockerfile", "tests/test.sh installs programs"},
		"verifier-image":     {VerdictUnsupported, "verifier.environment.docker_image", "fresh sandbox"},
		"other-service":      {VerdictUnsupported, "verifier.collect.service", "db"},
		"other-user":         {VerdictUnsupported, "agent.user", `"agent"`},
		"outside":            {VerdictUnsupported, "artifacts", "/var/lib/app/state.db"},
		"service":            {VerdictUnsupported, "environment.healthcheck", "no service"},
		"always-right":       {VerdictUnsound, "", "scores 1 instead of 0"},
		"shows-the-solution": {VerdictUnsound, "", "shows the agent solution/solve.sh"},
		"unreadable":         {VerdictUnsound, "", "task.toml:1"},
	}
	if got, all := slices.Sorted(maps.Keys(reports)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
		t.Errorf("reports on %q, want %q", got, all)
	}
	for name, w := range want {
		r := reports[name]
		said := strings.Join(append(r.Problems, r.Warnings...), "\n")
		if r.Verdict != w.verdict || r.Field != w.field || !strings.Contains(said, w.text) ||
			r.OK != (w.verdict == VerdictOK || w.verdict == VerdictInProcess) || w.verdict == VerdictOK && said != "" {
			t.Errorf("%s: %s %q: %q, want %+v", name, r.Verdict, r.Field, said, w)
		}
	}
}

func TestRefused(t *testing.T) {
	if got := Refused(nil); got != nil {
		t.Errorf("of no error: %+v", got)
	}
	// A pack that is one task.
	_, err := LoadDir("testdata/harbor/gpu")
	if got := Refused(err); len(got) != 1 || got[0].Field != "environment.gpus" {
		t.Errorf("%v: %+v", err, got)
	}
	if _, err := LoadDir("testdata/nothing"); err == nil || len(Refused(err)) != 0 {
		t.Errorf("no pack at all: %v", err)
	}
}
