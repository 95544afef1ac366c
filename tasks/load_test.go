package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// sound is a whole task; tests change one thing of it.
func sound() fstest.MapFS {
	return fstest.MapFS{
		"t/task.toml":                  file("[metadata.rondo]\nsnapshot = \"environment/repo\"\n"),
		"t/instruction.md":             file("Mend it.\n"),
		"t/environment/repo/README.md": file("hello\n"),
		"t/environment/repo/run.sh":    file("#!/bin/sh\n"),
		"t/tests/test.sh":              file("#!/bin/sh\n"),
		"t/solution/solve.sh":          file("#!/bin/sh\n"),
	}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }

func link(target string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// with gives sound with changes; a nil file is removed.
func with(changes fstest.MapFS) fstest.MapFS {
	pack := sound()
	for name, changed := range changes {
		if changed == nil {
			delete(pack, name)
		} else {
			pack[name] = changed
		}
	}
	return pack
}

func settings(text string) fstest.MapFS { return fstest.MapFS{"t/task.toml": file(text)} }

// staged is what makes a task of one stage, with more settings of it.
func staged(more string, changes fstest.MapFS) fstest.MapFS {
	all := fstest.MapFS{
		"t/task.toml": file(
			"[metadata.rondo]\nsnapshot = \"environment/repo\"\n[[steps]]\nname = \"one\"\n" + more),
		"t/steps/one/instruction.md": file("First."),
	}
	maps.Copy(all, changes)
	return all
}

func TestLoadRefuses(t *testing.T) {
	const named = "\n[metadata.rondo]\nsnapshot = \"environment/repo\"\n"
	cases := []struct {
		name    string
		changes fstest.MapFS
		want    []string // all of them in the error
	}{
		{"no verifier", fstest.MapFS{"t/tests/test.sh": nil}, []string{`task "t"`, "tests/test.sh", "reward.json"}},
		{"verifier is a folder", fstest.MapFS{"t/tests/test.sh": nil, "t/tests/test.sh/x": file("")},
			[]string{"tests/test.sh", "no regular file"}},
		{"verifier is a link", fstest.MapFS{"t/tests/test.sh": link("real.sh"), "t/tests/real.sh": file("x")},
			[]string{"tests/test.sh", "no regular file"}},
		{"verifier is empty", fstest.MapFS{"t/tests/test.sh": file(" \n")}, []string{"tests/test.sh", "empty"}},
		{"no instruction", fstest.MapFS{"t/instruction.md": nil}, []string{"instruction.md", "missing"}},
		{"blank instruction", fstest.MapFS{"t/instruction.md": file("\n \n")}, []string{"instruction.md", "empty"}},
		{"binary instruction", fstest.MapFS{"t/instruction.md": file("\xff\xfe")}, []string{"instruction.md", "UTF-8"}},
		{"huge instruction", fstest.MapFS{"t/instruction.md": file(strings.Repeat("x", maxInstruction+1))},
			[]string{"instruction.md", "limit"}},
		{"no task.toml", fstest.MapFS{"t/task.toml": nil}, []string{`task "t"`, "task.toml", "missing"}},
		{"steps folder", fstest.MapFS{"t/steps/one/instruction.md": file("x")}, []string{"no [[steps]]"}},
		{"stage without a folder", settings("[[steps]]\nname = \"one\"" + named), []string{"steps/one", "missing"}},
		{"stage without an instruction", staged("", fstest.MapFS{"t/steps/one/instruction.md": nil,
			"t/steps/one/x": file("")}), []string{"steps/one/instruction.md", "missing"}},
		{"stage without tests", staged("", fstest.MapFS{"t/tests/test.sh": nil}),
			[]string{"steps/one/tests/test.sh", "missing"}},
		{"stage above", staged("[[steps]]\nname = \"../x\"", nil), []string{"steps: 2", "name"}},
		{"stage twice", staged("[[steps]]\nname = \"one\"", nil), []string{"steps: 2", "of its own"}},
		{"strategy", fstest.MapFS{"t/task.toml": file(
			"multi_step_reward_strategy = \"best\"\n[[steps]]\nname = \"one\"" + named)},
			[]string{"multi_step_reward_strategy", "mean or final"}},
		{"least reward", staged("min_reward = \"much\"", nil), []string{"stage one", "min_reward"}},
		{"least rewards", staged("min_reward = { a = 1, b = nan }", nil), []string{"stage one", "min_reward", "b"}},
		{"no solution script is fine but a folder is not",
			fstest.MapFS{"t/solution/solve.sh": nil, "t/solution/solve.sh/x": file("")}, []string{"solution/solve.sh"}},

		{"syntax", settings("[agent\n"), []string{"task.toml:1"}},
		{"string for a number", settings("[agent]\ntimeout_sec = \"5\""),
			[]string{"task.toml:2", "agent.timeout_sec", "a number"}},
		{"number for a table", settings("agent = 3"), []string{"task.toml:1", "agent", "a table"}},
		{"number for a string", settings("[environment.env]\nA = 3"), []string{"environment.env.A", "a string"}},
		{"string for an array", settings("[metadata.rondo]\ntoolchains = \"go\""),
			[]string{"metadata.rondo.toolchains", "an array"}},
		{"fraction for an integer", settings("[environment]\nmemory_mb = 1.5"),
			[]string{"environment.memory_mb", "an integer"}},
		{"string for a boolean", settings("[environment]\nallow_internet = \"no\""),
			[]string{"environment.allow_internet", "a boolean"}},
		{"key twice", settings("[agent]\ntimeout_sec = 1\ntimeout_sec = 2"), []string{"task.toml:3"}},
		{"zero timeout", settings("[agent]\ntimeout_sec = 0"), []string{"agent.timeout_sec", "above 0"}},
		{"timeout is no number", settings("[verifier]\ntimeout_sec = nan"), []string{"verifier.timeout_sec"}},
		{"endless timeout", settings("[verifier]\ntimeout_sec = inf"), []string{"verifier.timeout_sec"}},
		{"schema of the future", settings("schema_version = \"2.0\""), []string{"schema_version", "2.0"}},
		{"windows", settings("[environment]\nos = \"windows\""), []string{"environment.os"}},
		{"gpu", settings("[environment]\ngpus = 1"), []string{"environment.gpus"}},
		{"mcp", settings("[[environment.mcp_servers]]\nname = \"x\""), []string{"mcp_servers"}},
		{"collect", settings("[[verifier.collect]]\ncommand = \" \""), []string{"verifier.collect.command"}},
		{"no memory", settings("[environment]\nmemory_mb = 0"), []string{"environment.memory_mb"}},
		{"memory without unit", settings("[environment]\nmemory = \"12\""), []string{"environment.memory"}},
		{"variable name", settings("[environment.env]\n\"A=B\" = \"x\""), []string{"environment.env", "A=B"}},
		{"host's variable", settings("[verifier.env]\nKEY = \"${API_KEY}\""),
			[]string{"verifier.env.KEY", "${API_KEY}", "default"}},
		{"deterministic blank", settings("[metadata.rondo]\ndeterministic = [\" \"]"),
			[]string{"metadata.rondo.deterministic", "4096 bytes"}},
		{"toolchain path", settings("[metadata.rondo]\ntoolchains = [\"../go\"]"),
			[]string{"metadata.rondo.toolchains"}},

		{"relative workdir", settings("[environment]\nworkdir = \"app\"" + named),
			[]string{"environment.workdir", "absolute"}},
		{"workdir of the system", settings("[environment]\nworkdir = \"/usr/src/app\"" + named),
			[]string{"environment.workdir", "/app"}},
		{"workdir is the root", settings("[environment]\nworkdir = \"/\"" + named), []string{"environment.workdir"}},
		{"workdir with dots", settings("[environment]\nworkdir = \"/app/../tests\"" + named),
			[]string{"environment.workdir"}},
		{"workdir of the verifier", settings("[environment]\nworkdir = \"/tests\"" + named),
			[]string{"environment.workdir"}},

		{"snapshot above", settings("[metadata.rondo]\nsnapshot = \"../other\""), []string{"metadata.rondo.snapshot"}},
		{"snapshot absolute", settings("[metadata.rondo]\nsnapshot = \"/etc\""), []string{"metadata.rondo.snapshot"}},
		{"snapshot is the task", settings("[metadata.rondo]\nsnapshot = \".\""), []string{"metadata.rondo.snapshot"}},
		{"snapshot is the solution", settings("[metadata.rondo]\nsnapshot = \"solution\""),
			[]string{"metadata.rondo.snapshot", "solution"}},
		{"snapshot is the verifier", settings("[metadata.rondo]\nsnapshot = \"tests/x\""),
			[]string{"metadata.rondo.snapshot", "verifier"}},
		{"snapshot is not there", settings("[metadata.rondo]\nsnapshot = \"environment/other\""),
			[]string{"metadata.rondo.snapshot", "environment/other"}},
		{"snapshot is a file", settings("[metadata.rondo]\nsnapshot = \"environment/repo/run.sh\""),
			[]string{"metadata.rondo.snapshot"}},
		{"image without a name", settings("[metadata.rondo]\nimage = true"),
			[]string{"metadata.rondo.image", "environment.docker_image"}},
		{"nothing to work on", fstest.MapFS{"t/task.toml": file(""), "t/environment/repo/README.md": nil,
			"t/environment/repo/run.sh": nil}, []string{"environment/", "missing or empty"}},
		{"compose", fstest.MapFS{"t/task.toml": file(""), "t/environment/docker-compose.yaml": file("")},
			[]string{"docker-compose.yaml"}},

		{"absolute link", fstest.MapFS{"t/environment/repo/etc": link("/etc/passwd")},
			[]string{"environment/repo/etc", "/etc/passwd", "leads out"}},
		{"link above the task", fstest.MapFS{"t/environment/repo/up": link("../../../x")},
			[]string{"environment/repo/up", "leads out"}},
		{"link to the solution", fstest.MapFS{"t/environment/repo/up": link("../../solution")},
			[]string{"up", "leads out"}},
		{"named pipe", fstest.MapFS{"t/environment/repo/p": &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o644}},
			[]string{"environment/repo/p", "named pipe"}},
		{"device", fstest.MapFS{"t/tests/null": &fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice}},
			[]string{"tests/null", "device"}},
		{"setuid", fstest.MapFS{"t/environment/repo/su": &fstest.MapFile{Mode: fs.ModeSetuid | 0o755}},
			[]string{"su", "setuid"}},
		{"control character", fstest.MapFS{"t/environment/repo/a\x1b[2Jb": file("")}, []string{"control character"}},
		{"backslash", fstest.MapFS{`t/environment/repo/a\b`: file("")}, []string{"bad file name"}},
		{"long name", fstest.MapFS{"t/environment/repo/" + strings.Repeat("n", 256): file("")}, []string{"256 bytes"}},
		{"deep", fstest.MapFS{"t/environment/repo/" + strings.Repeat("d/", 70) + "f": file("")},
			[]string{"nested deeper"}},
		{"huge file", fstest.MapFS{"t/tests/big": &fstest.MapFile{Data: make([]byte, maxHiddenFile+1)}},
			[]string{"tests/big", "limit"}},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			loaded, err := LoadPack(with(test.changes))
			if err == nil {
				t.Fatalf("loaded %d tasks, want an error with %q", len(loaded), test.want)
			}
			for _, want := range append(test.want, `task "t": `) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestLoadRefusesTooMuch(t *testing.T) {
	many := sound()
	for i := range maxFiles {
		many[fmt.Sprintf("t/environment/repo/%d", i)] = file("")
	}
	if _, err := LoadPack(many); err == nil || !strings.Contains(err.Error(), "more than 100000 files") {
		t.Errorf("100000 files: error %v", err)
	}
	heavy, block := sound(), make([]byte, maxHiddenFile)
	for i := range maxHidden/maxHiddenFile + 1 {
		heavy["t/tests/"+string(rune('a'+i))] = &fstest.MapFile{Data: block}
	}
	if _, err := LoadPack(heavy); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("too many bytes of tests: error %v", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, sound()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} { // they have no blocks on the disk
		name = filepath.Join(dir, "t", "environment", "repo", name)
		if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Truncate(name, int64(maxBytes)/2)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadDir(dir); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("too many bytes: error %v", err)
	}
}

func TestLoadOfSpecialFilesOnDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, sound()); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "t", "environment", "repo", "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDir(dir); err == nil || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("named pipe: error %v", err)
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "t"), filepath.Join(dir, "u")); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadDir(dir)
	if err == nil || !strings.Contains(err.Error(), `task "u": is a symbolic link`) {
		t.Errorf("linked task: error %v", err)
	}
	if len(loaded) != 1 || loaded[0].Name != "t" {
		t.Errorf("the good task beside it was not loaded: %v", loaded)
	}
}

func TestLoadReadsSettings(t *testing.T) {
	pack := with(fstest.MapFS{
		"t/task.toml": file(`
version = "1.0"
unknown = { key = 1 }
artifacts = ["a", { source = "b" }]
[task]
name = "org/other"
keywords = ["one", "two"]
[metadata]
difficulty = "hard"
[metadata.rondo]
snapshot = "environment/repo/"
toolchains = ["go", "go"]
[agent]
timeout_sec = 90
[verifier]
timeout_sec = 1.5
env = { TEST_DIR = "/tests" }
[environment]
workdir = "/workspace"
memory = "2G"
allow_internet = true
env = { MODE = "${MODE:-fast}", PLAIN = "$HOME" }
`),
		"t/instruction.md": file("<!-- canary GUID 123 -->\n# canary\nMend it.\n"),
		"README.md":        file("not a task"),
		"docs/page.md":     file("not a task either"),
		".git/task.toml":   file("nor this"),
	})
	loaded, err := LoadPack(pack)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != 1 {
		t.Fatalf("%d tasks, want 1", len(loaded))
	}
	task := loaded[0]
	if task.Name != "t" || task.Instruction != "Mend it." || task.Difficulty != "hard" ||
		strings.Join(task.Keywords, " ") != "one two" {
		t.Errorf("got %q %q %q %q", task.Name, task.Instruction, task.Difficulty, task.Keywords)
	}
	if task.AgentTimeout != 90*time.Second || task.VerifierTimeout != 1500*time.Millisecond || task.MemoryMB != 2048 {
		t.Errorf("got %v, %v, %d MB", task.AgentTimeout, task.VerifierTimeout, task.MemoryMB)
	}
	if task.Workdir != "/workspace" || strings.Join(task.Toolchains, " ") != "go" || len(task.Warnings) != 2 {
		t.Errorf("got %q %q %q", task.Workdir, task.Toolchains, task.Warnings)
	}
	if !maps.Equal(task.Env, map[string]string{"MODE": "fast", "PLAIN": "$HOME"}) ||
		task.VerifierEnv["TEST_DIR"] != "/tests" {
		t.Errorf("got env %v, verifier env %v", task.Env, task.VerifierEnv)
	}
	if got := contents(t, task.Snapshot); got != "README.md=hello\n|run.sh=#!/bin/sh\n" {
		t.Errorf("got snapshot %q", got)
	}
}

// contents writes a file system as "name=content" pairs.
func contents(t *testing.T, fsys fs.FS) string {
	t.Helper()
	var parts []string
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		parts = append(parts, name+"="+string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(parts, "|")
}

func TestSingleTaskFolder(t *testing.T) {
	single, err := fs.Sub(sound(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPack(single); err == nil || !strings.Contains(err.Error(), "task.name") {
		t.Errorf("without a name: error %v", err)
	}
	pack := with(settings("[task]\nname = \"org/mend\""))
	if single, err = fs.Sub(pack, "t"); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadPack(single)
	if err != nil || len(loaded) != 1 || loaded[0].Name != "mend" {
		t.Errorf("got %v, %v", loaded, err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, pack); err != nil {
		t.Fatal(err)
	}
	if loaded, err = LoadDir(filepath.Join(dir, "t")); err != nil || len(loaded) != 1 || loaded[0].Name != "t" {
		t.Errorf("from a directory: got %v, %v", loaded, err)
	}
}

func TestEmptyPack(t *testing.T) {
	if _, err := LoadPack(fstest.MapFS{"docs/x": file("")}); err == nil ||
		!strings.Contains(err.Error(), "no task found") {
		t.Errorf("error %v", err)
	}
	if _, err := LoadDir(filepath.Join(t.TempDir(), "missing")); err == nil ||
		!strings.Contains(err.Error(), "missing") {
		t.Errorf("error %v", err)
	}
}

func TestErrorsOfAllTasksAreJoined(t *testing.T) {
	pack := sound()
	for name, data := range sound() {
		pack["bad1"+name[1:]], pack["bad2"+name[1:]] = data, data
	}
	delete(pack, "bad1/tests/test.sh")
	delete(pack, "bad2/instruction.md")
	pack["bad name/task.toml"] = file("")
	loaded, err := LoadPack(pack)
	if len(loaded) != 1 || err == nil {
		t.Fatalf("got %d tasks, error %v", len(loaded), err)
	}
	for _, want := range []string{`task "bad1": tests/test.sh`, `task "bad2": instruction.md`,
		`task "bad name": bad name`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestDigestCoversTheTask(t *testing.T) {
	digestOf := func(changes fstest.MapFS) string {
		t.Helper()
		loaded, err := LoadPack(with(changes))
		if err != nil {
			t.Fatal(err)
		}
		return loaded[0].Digest
	}
	seen := map[string]string{digestOf(nil): "the same task"}
	for name, changes := range map[string]fstest.MapFS{
		"instruction": {"t/instruction.md": file("Mend it now.\n")},
		"content":     {"t/environment/repo/README.md": file("hullo\n")},
		"name":        {"t/environment/repo/README.md": nil, "t/environment/repo/README": file("hello\n")},
		"mode":        {"t/environment/repo/README.md": {Data: []byte("hello\n"), Mode: 0o755}},
		"link":        {"t/environment/repo/l": link("run.sh")},
		"other link":  {"t/environment/repo/l": link("README.md")},
		"empty dir":   {"t/environment/repo/d": {Mode: fs.ModeDir | 0o755}},
		"verifier":    {"t/tests/test.sh": file("#!/bin/sh\n#\n")},
		"solution":    {"t/solution/solve.sh": file("#!/bin/sh\n#\n")},
		"no solution": {"t/solution/solve.sh": nil},
		"one stage":   staged("", nil),
		"its gate":    staged("min_reward = 1", nil),
		"its tests":   staged("", fstest.MapFS{"t/steps/one/tests/more": file("x")}),
		"its fix":     staged("", fstest.MapFS{"t/steps/one/solution/solve.sh": file("x")}),
		"its files":   staged("", fstest.MapFS{"t/steps/one/workdir/more": file("x")}),
		"a second":    bringing("", nil),
		"with files":  bringing("", fstest.MapFS{"t/steps/two/workdir/more": file("x")}),
		"other files": bringing("", fstest.MapFS{"t/steps/two/workdir/more": file("y")}),
		"setting": {"t/task.toml": file(
			"[metadata.rondo]\nsnapshot = \"environment/repo\"\n[environment]\nmemory_mb = 64")},
	} {
		got := digestOf(changes)
		if other, found := seen[got]; found {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[got] = name
	}
	if again := digestOf(nil); seen[again] != "the same task" {
		t.Error("the digest of one task differs between two loads")
	}
}

func TestTreeIsAFileSystem(t *testing.T) {
	pack := with(fstest.MapFS{
		"t/environment/repo/sub/file":   file("x"),
		"t/environment/repo/sub/link":   link("../README.md"),
		"t/environment/repo/alias":      link("sub"),
		"t/environment/repo/loop":       link("loop"),
		"t/environment/repo/dangling":   link("nothing"),
		"t/environment/repo/unreadable": &fstest.MapFile{Data: []byte("x"), Mode: 0},
	})
	loaded, err := LoadPack(pack)
	if err != nil {
		t.Fatal(err)
	}
	fsys := loaded[0].Snapshot
	for name, want := range map[string]string{"sub/link": "hello\n", "alias/file": "x", "alias/link": "hello\n"} {
		t.Run(name, func(t *testing.T) {
			if got, err := fs.ReadFile(fsys, name); err != nil || !bytes.Equal(got, []byte(want)) {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		})
	}
	for _, name := range []string{"loop", "dangling", "../t", "/etc/passwd", "sub/../README.md"} {
		if _, err := fs.ReadFile(fsys, name); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
	pack = with(fstest.MapFS{"t/environment/repo/sub/file": file("x"), "t/environment/repo/alias": link("sub/file")})
	if loaded, err = LoadPack(pack); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(loaded[0].Snapshot, "README.md", "run.sh", "sub/file"); err != nil {
		t.Error(err)
	}
}

// TestSnapshotLargerThanMemory: what a machine without a disk for workspaces cannot hold is said
// before anything is packed.
func TestSnapshotLargerThanMemory(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, sound()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "t", "environment", "repo", "large")
	if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Truncate(name, 300<<20)); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Machine{}).Spec(loaded[0]); err == nil || !strings.Contains(err.Error(), "--workspace-disk") {
		t.Errorf("without a disk: %v", err)
	}
	for asked, want := range map[int]int{0: 300 + 128, 1024: 1024} {
		loaded[0].DiskMB = asked
		if spec, err := (Machine{Disk: dir}).Spec(loaded[0]); err != nil || spec.DiskMB != want {
			t.Errorf("with a disk, where the task asks for %d MiB: %d, %v, want %d", asked, spec.DiskMB, err, want)
		}
	}
}
