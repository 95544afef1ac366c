package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShippedProfilesAreValid(t *testing.T) {
	for name, p := range Shipped() {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if p.Name != name || p.Command[0] != Folder+"/bin/"+p.Program || len(p.Seen) == 0 || p.Help == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	changed := Shipped()["codex"]
	changed.Command[0] = "changed"
	if Shipped()["codex"].Command[0] == "changed" {
		t.Error("who changes a profile changes it for all")
	}
}

func TestNamed(t *testing.T) {
	pinned, err := Named("codex")
	if err != nil || pinned.Install.Version == "" || pinned.Install.Before == "" {
		t.Errorf("%+v, %v", pinned.Install, err)
	}
	other, err := Named("codex@0.170.1")
	if err != nil || other.Install.Version != "0.170.1" || other.Install.Before != "" {
		t.Errorf("%+v, %v", other.Install, err)
	}
	for text, want := range map[string]string{"nope": "claude-code", "codex@": "name the version",
		"codex@1 --ignore": "name the version", "codex@latest": "name the version"} {
		if _, err := Named(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestReadProfile(t *testing.T) {
	const mine = `name: mine
install: {npm: "@acme/agent", version: 1.2.3}
program: agent
command: [/opt/agent/bin/agent, --yes, "{instruction}"]
env: {ACME_TELEMETRY: "0"}
`
	folder := t.TempDir()
	for name, c := range map[string]struct{ old, with, want string }{
		"as it is":            {},
		"two recipes":         {"version: 1.2.3", "version: 1.2.3, pypi: x", "one of npm, pypi and files"},
		"no version":          {", version: 1.2.3", "", "install.version"},
		"an option as name":   {"@acme/agent", "--global", "install.npm"},
		"a URL as name":       {"@acme/agent", "https://example.org/x.tgz", "install.npm"},
		"no instruction":      {"{instruction}", "do", "{instruction}"},
		"a host's program":    {"/opt/agent/bin/agent", "/bin/sh", "below /opt/agent/"},
		"a way out":           {"/opt/agent/bin/agent", "/opt/agent/../../bin/sh", "below /opt/agent/"},
		"a key of the future": {"program:", "programme:", "programme"},
		"a program by path":   {"program: agent", "program: ../agent", "program"},
		"a file elsewhere":    {"env:", "files: {../x: y}\nenv:", "below the home folder"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(folder, "profile.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(mine, c.old, c.with, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := Read(file)
			switch {
			case c.want == "" && (err != nil || p.Install.NPM != "@acme/agent" || p.Env["ACME_TELEMETRY"] != "0"):
				t.Errorf("%+v, %v", p, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestExpand: a value that looks like a placeholder stays as it is.
func TestExpand(t *testing.T) {
	got := Expand("{model} {instruction} {other}", map[string]string{Model: "m", Instruction: "say {model}"})
	if got != "m say {model} {other}" {
		t.Error(got)
	}
}
