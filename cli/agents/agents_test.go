package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

func TestMain(m *testing.M) { clitest.Main(m, New) }

// layer puts a layer into a store, without its files.
func layer(t *testing.T, store storage.Store, name, version string) (digest string) {
	t.Helper()
	p := agents.Profile{Name: name, Install: agents.Install{NPM: "@acme/" + name, Version: version}, Program: name,
		Command: []string{"/opt/agent/bin/" + name, agents.Instruction}}
	text, err := json.Marshal(agents.Layer{
		Version: 1, Profile: p, Platform: "linux/amd64", Glibc: "2.28", Interpreter: "node 24.22.3", Files: 7,
		Bytes: 4096, Tree: servicetest.Blob(t, store, []byte("tree of "+name+version)),
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(digest string) string { return agents.Prefix + digest + ".json" }
	ref, err := storage.PutKeyedFrom(t.Context(), store, manifest, bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	return ref.SHA256
}

func TestLayersAreShown(t *testing.T) {
	var digest string
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) { digest = layer(t, log.Store(), "mine", "1.2.3") })
	for _, c := range []struct {
		args  string
		parts []string
		fails bool
	}{
		{"list", []string{digest[:12], "mine", "1.2.3", "linux/amd64", "4096",
			"claude-code     npm @anthropic-ai/claude-code", "mini-swe-agent  PyPI mini-swe-agent"}, false},
		{"list --json", []string{`{"layers":[{"digest":"` + digest, `"profiles":[{"name":"aider"`}, false},
		{"show mine", []string{"layer " + digest,
			"7 files, 4096 bytes, for linux/amd64 with glibc 2.28 or later; it brings node 24.22.3",
			`"npm": "@acme/mine"`}, false},
		{"show mine@1.2.3 --json", []string{`{"layer":{"digest":"` + digest}, false},
		{"show " + digest[:6], []string{"layer " + digest}, false},
		{"show " + digest[:5], []string{"there is no such layer: `rondo agents list`"}, true},
		{"show mine@2", []string{`"mine@2"`, "there is no such layer"}, true},
		{"show codex", []string{"profile codex: the store has no layer of it (rondo agents build codex)",
			`"npm": "@openai/codex"`}, false},
		{"build nope", []string{`there is no profile "nope": there are aider, claude-code, codex`}, true},
		{"build codex@latest", []string{"install.version", "for example 1.2.3"}, true},
		{"build", []string{"name an agent, or give --profile FILE"}, true},
		{"build codex --profile x.yaml", []string{"not both"}, true},
		{"build codex --registry npm=nope", []string{"--registry", "https://mirror.example.org"}, true},
		{"build --profile nope.yaml", []string{"nope.yaml"}, true},
	} {
		output, err := clitest.Run(t, New, append([]string{"agents", "--dir", dir}, strings.Fields(c.args)...)...)
		if err != nil {
			output += err.Error()
		}
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.args, err)
		}
		for _, part := range c.parts {
			if !strings.Contains(output, part) {
				t.Errorf("%s says\n%s\nwant %q", c.args, output, part)
			}
		}
	}
}

// TestALayerThatARunNamesStays: an open run keeps its layer, a closed one does not.
func TestALayerThatARunNamesStays(t *testing.T) {
	r := clitest.NewRecorded(t)
	used, free := layer(t, r.Log.Store(), "used", "1.0"), layer(t, r.Log.Store(), "free", "1.0")
	cfg := servicetest.Config("fix-a")
	cfg.InFlight, cfg.Agent = 1, &runfile.Agent{Command: []string{"agent", runfile.InstructionArgument}, Layer: used}
	cfg.Tasks[0].Instruction = "It names another layer: " + free
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	servicetest.OpenRun(t, r.Log, "second", cfg)
	remove := func(text string) (string, error) {
		return clitest.Run(t, New, "agents", "--dir", r.Dir, "remove", text)
	}
	if out, err := remove(used); err == nil || !strings.Contains(err.Error(),
		"run second names the layer "+used+": close it first (rondo run close second)") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := remove("free"); err == nil || !strings.Contains(err.Error(), "by its digest, "+free) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := remove(free[:8]); err != nil || !strings.Contains(out, "layer "+free+" of free 1.0 is removed") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := agents.Load(t.Context(), r.Log.Store(), free); !errors.Is(err, agents.ErrNoLayer) {
		t.Errorf("%v, want it gone", err)
	}
	servicetest.CloseRun(t, r.Log, "second")
	if out, err := remove(used); err != nil || !strings.Contains(out, "layer "+used+" of used 1.0 is removed") {
		t.Errorf("the run is closed: %v\n%s", err, out)
	}
}

// TestADamagedLayerIsShownAndRemoved: others are still found.
func TestADamagedLayerIsShownAndRemoved(t *testing.T) {
	var good, bad string
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		good, bad = layer(t, log.Store(), "good", "1.0"), layer(t, log.Store(), "bad", "1.0")
		if err := log.Store().Put(t.Context(), agents.Prefix+bad+".json", []byte(`{"version":1`)); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range []struct {
		args, part string
		fails      bool
	}{
		{"list", bad[:12] + "  (damaged)", false},
		{"list", "rondo agents remove " + bad, false},
		{"list --json", `"damaged":"agents/` + bad, false},
		{"show good", "layer " + good, false},
		{"show " + good, "layer " + good, false},
		{"show " + bad, "sha256 is not", true},
		{"remove " + bad[:8], "rondo agents remove " + bad, true},
		{"remove " + bad, "layer " + bad + " of an unknown agent is removed", false},
		{"remove " + bad, "there is no such layer", true},
	} {
		out, err := clitest.Run(t, New, append([]string{"agents", "--dir", dir}, strings.Fields(c.args)...)...)
		if err != nil {
			out += err.Error()
		}
		if (err != nil) != c.fails || !strings.Contains(out, c.part) {
			t.Errorf("%s: %v\n%s\nwant %q", c.args, err, out, c.part)
		}
	}
}

func TestBuildOfOnesOwn(t *testing.T) {
	sandboxtest.Require(t)
	dir, folder := clitest.FilledPlane(t, nil), t.TempDir()
	clitest.Write(t, filepath.Join(folder, "files", "bin", "agent"), "#!/bin/sh\necho \"agent 1.2 $*\"\n")
	profile := clitest.Write(t, filepath.Join(folder, "mine.yaml"), `name: mine
install: {files: files, version: "1.2"}
command: [/opt/agent/bin/agent, "{instruction}"]
seen: ["1.1"]
`)
	out, err := clitest.Run(t, New, "agents", "build", "--profile", profile, "--dir", dir, "--json")
	var built agents.Built
	if err != nil || json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &built) != nil ||
		built.Reported != "agent 1.2 --version" || !built.Untried {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "the profile mine was tried with 1.1, and not with 1.2") {
		t.Errorf("it says\n%s", out)
	}
	out, err = clitest.Run(t, New, "agents", "show", "mine", "--dir", dir)
	if err != nil || !strings.Contains(out, "layer "+built.Digest) {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(folder, "files", "bin", "agent")); err != nil {
		t.Fatal(err)
	}
	if out, err = clitest.Run(t, New, "agents", "build", "--profile", profile, "--dir", dir); err == nil ||
		!strings.Contains(err.Error(), "tried with 1.1") {
		t.Errorf("%v\n%s", err, out)
	}
}
