package swebench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hostile is a repository of one commit under attack: whatever its settings name to be run
// would make the file marker.
type hostile struct {
	t            *testing.T
	dir          string // of the working tree
	marker       string
	program      string // makes the marker, and prints nothing
	commit, blob string // blob: the id of file.txt
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		need(t, "git")
	}
	base := t.TempDir()
	h := &hostile{t: t, dir: filepath.Join(base, "repo"), marker: filepath.Join(base, "marker"),
		program: filepath.Join(base, "program")}
	h.write(h.program, "#!/bin/sh\ntouch "+h.marker+"\nexit 1\n")
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.git("init", "-q")
	h.put(".gitattributes", "*.txt filter=evil diff=evil merge=evil\n")
	h.put("file.txt", "as it is\n")
	h.git("add", "-A")
	h.git("commit", "-q", "-m", "base")
	h.commit, h.blob = h.git("rev-parse", "HEAD"), h.git("rev-parse", "HEAD:file.txt")
	return h
}

func (h *hostile) git(args ...string) string {
	h.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", h.dir, "-c", "user.name=a", "-c", "user.email=a@example.com"},
		args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (h *hostile) write(name, text string) {
	h.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
		h.t.Fatal(err)
	}
}

// put writes a file of the working tree or of .git.
func (h *hostile) put(name, text string) { h.t.Helper(); h.write(filepath.Join(h.dir, name), text) }

// set adds lines to the repository's settings.
func (h *hostile) set(text string) {
	h.t.Helper()
	config := filepath.Join(h.dir, ".git/config")
	before, err := os.ReadFile(config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(config, string(before)+strings.ReplaceAll(text, "PROGRAM", h.program))
}

func (h *hostile) remove(name string) {
	h.t.Helper()
	if err := os.RemoveAll(filepath.Join(h.dir, name)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hostile) rename(from, to string) {
	h.t.Helper()
	if err := os.Rename(filepath.Join(h.dir, from), filepath.Join(h.dir, to)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hostile) link(target, name string) {
	h.t.Helper()
	if err := os.Symlink(target, filepath.Join(h.dir, name)); err != nil {
		h.t.Fatal(err)
	}
}

// partial makes a partial clone of it which lacks a blob, and would fetch it by settings.
func (h *hostile) partial(settings string) {
	h.t.Helper()
	h.put(".git/objects/pack/pack-"+h.commit+".promisor", "")
	h.remove(".git/objects/" + h.blob[:2] + "/" + h.blob[2:])
	h.set("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[remote \"origin\"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n" + settings)
}

// commitTree makes a commit of a tree that is given as its raw entries.
func (h *hostile) commitTree(entries string) string {
	h.t.Helper()
	h.write(h.dir+"/../tree", entries)
	tree := h.git("hash-object", "-t", "tree", "-w", "--literally", h.dir+"/../tree")
	return h.git("commit-tree", "-m", "hostile", tree)
}

func raw(h *hostile, id string) string {
	var bytes []byte
	if _, err := fmt.Sscanf(id, "%x", &bytes); err != nil {
		h.t.Fatal(err)
	}
	return string(bytes)
}

// TestHostileRepositories: a repository is read without its settings, so that nothing it names is
// run, and without leaving it.
func TestHostileRepositories(t *testing.T) {
	for name, c := range map[string]struct {
		attack func(*hostile)
		fails  bool // to be read at all
	}{
		"a partial clone from a program": {func(h *hostile) { h.partial("\turl = .\n\tuploadpack = PROGRAM\n") }, true},
		"a partial clone by ssh": {func(h *hostile) {
			h.partial(
				"\turl = ssh://host/x\n[core]\n\tsshCommand = PROGRAM\n")
		}, true},
		"a partial clone by ext": {func(h *hostile) {
			h.partial(
				"\turl = ext::PROGRAM\n[protocol]\n\tallow = always\n")
		}, true},
		"a partial clone by a proxy": {func(h *hostile) {
			h.partial(
				"\turl = git://host/x\n[core]\n\tgitProxy = PROGRAM\n")
		}, true},
		"a partial clone with a password": {func(h *hostile) {
			h.partial("\turl = http://127.0.0.1:1/x\n[credential]\n\thelper = !PROGRAM\n[core]\n\taskPass = PROGRAM\n")
		}, true},
		"a monitor of files": {func(h *hostile) { h.set("[core]\n\tfsmonitor = PROGRAM\n") }, false},
		"filters": {func(h *hostile) {
			h.set("[filter \"evil\"]\n\tsmudge = PROGRAM\n\tclean = PROGRAM\n\tprocess = PROGRAM\n")
		}, false},
		"differences as text": {func(h *hostile) {
			h.set(
				"[diff \"evil\"]\n\ttextconv = PROGRAM\n\tcommand = PROGRAM\n")
		}, false},
		"a pager": {func(h *hostile) {
			h.set("[core]\n\tpager = PROGRAM\n\teditor = PROGRAM\n[pager]\n\tls-tree = PROGRAM\n\tcat-file = true\n")
		}, false},
		"attributes of the repository": {func(h *hostile) {
			h.put(".git/info/attributes",
				"* filter=evil diff=evil merge=evil ident text=auto working-tree-encoding=UTF-16 export-ignore\n")
			h.put("evil.attributes", "* filter=evil\n")
			h.set("[core]\n\tattributesFile = evil.attributes\n\tautocrlf = true\n[filter \"evil\"]\n\tsmudge = PROGRAM\n\tclean = PROGRAM\n\tprocess = PROGRAM\n\trequired = true\n[merge \"evil\"]\n\tdriver = PROGRAM\n")
		}, false},
		"settings for a path": {func(h *hostile) {
			h.partial("\turl = .\n[includeIf \"gitdir:**\"]\n\tpath = evil\n[includeIf \"onbranch:**\"]\n\tpath = evil\n")
			h.put(".git/evil", "[remote \"origin\"]\n\tuploadpack = "+h.program+
				"\n[core]\n\tfsmonitor = "+h.program+"\n")
		}, true},
		"another address for a remote": {func(h *hostile) {
			h.partial("\turl = https://host/x\n\tvcs = evil\n[url \"ext::PROGRAM \"]\n\tinsteadOf = https://host/\n[protocol \"ext\"]\n\tallow = always\n")
		}, true},
		"a settings folder of an account": {func(h *hostile) {
			h.partial("\turl = .\n")
			h.put(".gitconfig", "[remote \"origin\"]\n\tuploadpack = "+h.program+"\n")
			h.put("git/config", "[remote \"origin\"]\n\tuploadpack = "+h.program+"\n")
			h.t.Setenv("HOME", h.dir)
			h.t.Setenv("XDG_CONFIG_HOME", h.dir)
		}, true},
		"a format of refs": {func(h *hostile) {
			h.set("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = PROGRAM\n\tevil = PROGRAM\n")
		}, false},
		"names for commands": {func(h *hostile) { h.set("[alias]\n\tls-tree = !PROGRAM\n\tcat-file = !PROGRAM\n") },
			false},
		"hooks": {func(h *hostile) {
			for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction",
				"pre-commit", "fsmonitor-watchman"} {
				h.put(".git/hooks/"+hook, "#!/bin/sh\n"+h.program+"\n")
			}
			h.set("[core]\n\thooksPath = .git/hooks\n")
		}, false},
		"settings that are included": {func(h *hostile) {
			h.partial("\turl = .\n[include]\n\tpath = evil\n")
			h.put(".git/evil", "[remote \"origin\"]\n\tuploadpack = "+h.program+"\n")
		}, true},
		"settings of a working tree": {func(h *hostile) {
			h.partial("\turl = .\n[extensions]\n\tworktreeConfig = true\n")
			h.put(".git/config.worktree", "[remote \"origin\"]\n\tuploadpack = "+h.program+"\n")
		}, true},
		"a folder that others share": {func(h *hostile) {
			h.partial("\turl = .\n\tuploadpack = PROGRAM\n")
			h.rename(".git", "common")
			h.put(".git/HEAD", h.commit+"\n")
			h.put(".git/commondir", "../common\n")
		}, true},
		"a repository that lies elsewhere": {func(h *hostile) {
			h.partial("\turl = .\n\tuploadpack = PROGRAM\n")
			h.rename(".git", "elsewhere")
			h.put(".git", "gitdir: elsewhere\n")
		}, true},
		"a linked repository": {func(h *hostile) {
			h.partial("\turl = .\n\tuploadpack = PROGRAM\n")
			h.rename(".git", "elsewhere")
			h.link("elsewhere", ".git")
		}, true},
		"a bare repository": {func(h *hostile) {
			h.partial("\turl = .\n\tuploadpack = PROGRAM\n")
			h.rename(".git/HEAD", "HEAD")
			h.rename(".git/config", "config")
			h.rename(".git/objects", "objects")
			h.rename(".git/refs", "refs")
			h.remove(".git")
		}, true},
		"objects of another repository": {func(h *hostile) {
			h.rename(".git/objects", "private")
			h.put(".git/objects/info/alternates", h.dir+"/private\n")
			h.set("[core]\n\talternateRefsCommand = PROGRAM\n")
		}, true},
		"objects over the network": {func(h *hostile) {
			h.put(".git/objects/info/http-alternates", "http://127.0.0.1:1/\n")
		}, true},
		"linked objects": {func(h *hostile) {
			h.rename(".git/objects", "private")
			h.link("../private", ".git/objects")
		}, true},
		"one linked object": {func(h *hostile) {
			name := ".git/objects/" + h.blob[:2] + "/" + h.blob[2:]
			h.rename(name, "private")
			h.link("../../../private", name)
		}, true},
		"a replaced file": {func(h *hostile) {
			h.put("file.txt", "replaced\n")
			other := h.git("hash-object", "-w", filepath.Join(h.dir, "file.txt"))
			h.git("replace", h.blob, other)
		}, false},
		"a submodule": {func(h *hostile) {
			h.commit = h.commitTree("100644 file.txt\x00" + raw(h, h.blob) + "160000 sub\x00" + raw(h, h.commit))
			h.set("[submodule \"sub\"]\n\turl = ext::PROGRAM\n\tupdate = !PROGRAM\n")
		}, false},
		"a file in .git":  {func(h *hostile) { h.commit = h.commitTree("100644 .GIT\x00" + raw(h, h.blob)) }, true},
		"a file named ..": {func(h *hostile) { h.commit = h.commitTree("100644 ..\x00" + raw(h, h.blob)) }, true},
		"a file with a path": {func(h *hostile) { h.commit = h.commitTree("100644 ../../x\x00" + raw(h, h.blob)) },
			true},
		"the settings of who imports": {func(h *hostile) {
			h.partial("\turl = .\n")
			h.t.Setenv("GIT_CONFIG_COUNT", "1")
			h.t.Setenv("GIT_CONFIG_KEY_0", "remote.origin.uploadpack")
			h.t.Setenv("GIT_CONFIG_VALUE_0", h.program)
			h.t.Setenv("GIT_DIR", filepath.Join(h.dir, ".git"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t)
			c.attack(h)
			into := filepath.Join(t.TempDir(), "repo")
			err := checkOut(t.Context(), h.dir, h.commit, into)
			if _, statErr := os.Stat(h.marker); statErr == nil {
				t.Error("a program of the repository ran")
			}
			if (err != nil) != c.fails {
				t.Errorf("it is read: %v", err)
			}
			if text, readErr := os.ReadFile(filepath.Join(into, "file.txt")); err == nil &&
				string(text) != "as it is\n" {
				t.Errorf("file.txt holds %q, %v", text, readErr)
			}
		})
	}
}

// TestTreeBomb: a tree of few objects that stands for billions of files ends the
// import, soon and with an error.
func TestTreeBomb(t *testing.T) {
	h := newHostile(t)
	entries := "100644 x\x00" + raw(h, h.blob)
	for range 12 {
		h.write(h.dir+"/../tree", entries)
		tree := raw(h, h.git("hash-object", "-t", "tree", "-w", h.dir+"/../tree"))
		entries = ""
		for i := range 10 {
			entries += fmt.Sprintf("40000 %d\x00%s", i, tree)
		}
	}
	if err := checkOut(t.Context(), h.dir, h.commitTree(entries), filepath.Join(t.TempDir(), "repo")); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("it is read: %v", err)
	}
}

// TestOpen: the commit that is checked out is read from files of the repository alone.
func TestOpen(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*hostile)
		want   string // of the error; "" for none
	}{
		"a branch":    {func(*hostile) {}, ""},
		"packed refs": {func(h *hostile) { h.git("pack-refs", "--all") }, ""},
		"no branch":   {func(h *hostile) { h.git("checkout", "-q", "--detach") }, ""},
		"no commit":   {func(h *hostile) { h.git("checkout", "-q", "--orphan", "empty") }, "refs/heads/empty"},
		"no folder":   {func(h *hostile) { h.remove(".git") }, "no Git repository"},
		"shallow":     {func(h *hostile) { h.put(".git/shallow", h.commit+"\n") }, "git fetch --unshallow"},
		"an option":   {func(h *hostile) { h.put(".git/HEAD", "--output=x\n") }, "hexadecimal"},
		"a short id":  {func(h *hostile) { h.put(".git/HEAD", h.commit[:12]+"\n") }, "hexadecimal"},
		"a link": {func(h *hostile) { h.rename(".git/HEAD", "old"); h.link("../old", ".git/HEAD") },
			"want a file"},
		"a pipe":      {func(h *hostile) { h.remove(".git/HEAD"); h.pipe(".git/HEAD") }, "want a file"},
		"a long file": {func(h *hostile) { h.put(".git/HEAD", strings.Repeat("x", maxRef+1)) }, "want a file"},
		"a way out": {func(h *hostile) {
			h.put("file", h.commit+"\n")
			h.put(".git/HEAD",
				"ref: refs/../../file\n")
		}, "name of a branch"},
		"another file": {func(h *hostile) { h.put(".git/HEAD", "ref: config\n") }, "name of a branch"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t)
			c.change(h)
			objects, commit, err := Open(h.dir)
			if err == nil {
				objects.Close()
			}
			if (err == nil) != (c.want == "") || err == nil && commit != h.commit ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v", commit, err)
			}
		})
	}
}

func (h *hostile) pipe(name string) {
	h.t.Helper()
	if out, err := exec.Command("mkfifo", filepath.Join(h.dir, name)).CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
}
