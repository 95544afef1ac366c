package commits

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// proxy serves modules of Go to this process's go command, whose settings are the test's.
type proxy struct {
	folder string
	server *httptest.Server
	mu     sync.Mutex
	asked  []string
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{folder: t.TempDir()}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.URL.Path)
		p.mu.Unlock()
		if strings.Contains(r.URL.Path, "/endless/") && strings.HasSuffix(r.URL.Path, ".zip") {
			for piece := make([]byte, 1<<16); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}
		http.FileServer(http.Dir(p.folder)).ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	for name, value := range map[string]string{
		"GOPROXY": p.server.URL + ",direct", "GOSUMDB": "off", "GOMODCACHE": t.TempDir(), "GOFLAGS": "-mod=vendor -modfile=/nowhere/go.mod", "GOPRIVATE": "", "GONOPROXY": "", "GONOSUMDB": "",
		"GOENV": "off", "GOTOOLCHAIN": "auto",
	} {
		t.Setenv(name, value)
	}
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		p.module(t, "example.test/pad", version, "go 1.20\n")
	}
	return p
}

func (p *proxy) module(t *testing.T, path, version, more string) {
	t.Helper()
	sandboxtest.Module(t, p.folder, path, version, map[string]string{
		"go.mod": "module " + path + "\n\n" + more,
		"pad.go": "package pad\n\n// Pad pads.\nfunc Pad(s string) string { return \" \" + s }\n\nconst Version = \"" + version + "\"\n",
	})
}

func newFetcher(t *testing.T) *fetcher {
	t.Helper()
	return &fetcher{dir: filepath.Join(t.TempDir(), modulesFolder), most: maxModules, sets: map[string]moduleSet{}}
}

// mod is a go.mod as the only file of a repository.
func mod(lines string) map[string][]byte {
	return map[string][]byte{"go.mod": []byte("module acme.test/stock\n\ngo 1.20\n\n" + lines)}
}

func (set moduleSet) files(t *testing.T) (names []string) {
	t.Helper()
	if set.folder == "" {
		return nil
	}
	err := fs.WalkDir(os.DirFS(set.folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return names
}

// TestFetch: what both sides of a commit need is there once it is fetched, and is asked for once.
func TestFetch(t *testing.T) {
	p := newProxy(t)
	f := newFetcher(t)
	sides := []map[string][]byte{mod("require example.test/pad v1.1.0\n"), mod("require example.test/pad v1.0.0\n")}
	set, err := f.get(t.Context(), "one", sides, ".")
	var want []string
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		for _, ending := range kept {
			want = append(want, "example.test/pad/@v/"+version+ending)
		}
	}
	slices.Sort(want)
	if got := set.files(t); err != nil || set.lacks != "" || set.reason != "" || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, %q", set, err, got)
	}
	p.server.Close()
	if again, err := f.get(t.Context(), "one", nil, "."); err != nil || again != set {
		t.Errorf("the same: %+v, %v", again, err)
	}
	if other, err := f.get(t.Context(), "two", sides[1:], "."); err != nil || len(other.files(t)) != 4 {
		t.Errorf("a part of it: %+v, %v", other, err)
	}
	f.close()
	if left, err := os.ReadDir(f.dir); err != nil || len(left) != 1 || left[0].Name() != "all" {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, name := range p.asked {
		if !strings.HasPrefix(name, "/example.test/pad/@v/") {
			t.Errorf("asked for %s", name)
		}
	}
}

// TestFetchRefuses: what a go.mod asks for beyond modules of a proxy is a named reason, or not to be had.
func TestFetchRefuses(t *testing.T) {
	p := newProxy(t)
	p.module(t, "example.test/new", "v1.0.0", "go 1.99\n")
	p.module(t, "example.test/endless", "v1.0.0", "")
	p.module(t, "example.test/half", "v1.0.0", "")
	if err := os.Remove(filepath.Join(p.folder, "example.test/half/@v/v1.0.0.zip")); err != nil {
		t.Fatal(err)
	}
	secret := strings.Replace(p.server.URL, "//", "//user:hunter2@", 1)
	inside := mod("require example.test/sub v0.0.0\nrequire example.test/pad v1.0.0\nreplace example.test/sub => ./sub\n")
	inside["sub/go.mod"] = []byte("module example.test/sub\n\nrequire example.test/pad v1.0.0\n")
	summed := mod("require example.test/pad v1.0.0\n")
	summed["go.sum"] = []byte("example.test/pad v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	for name, c := range map[string]struct {
		files        map[string][]byte
		proxy        string
		reason, said string
		n            int // files of the pad
	}{
		"nothing":                   {files: mod("")},
		"a folder of it":            {files: inside, n: 4},
		"a folder beside it":        {files: mod("require a.test/a v0.0.0\nreplace a.test/a => ../a\n"), reason: Outside, said: "../a"},
		"a folder of this machine":  {files: mod("require a.test/a v0.0.0\nreplace a.test/a => /etc\n"), reason: Outside, said: "/etc"},
		"another toolchain":         {files: mod("toolchain go1.99.0\nrequire example.test/pad v1.0.0\n"), n: 4},
		"a newer Go":                {files: map[string][]byte{"go.mod": []byte("module a.test/a\n\ngo 1.99\n")}, reason: NewerGo, said: "1.99"},
		"no go.mod":                 {files: mod("nonsense\n"), reason: Unfetched, said: "nonsense"},
		"an unknown module":         {files: mod("require example.test/gone v1.0.0\n"), reason: Unfetched, said: "404"},
		"a module without files":    {files: mod("require example.test/half v1.0.0\nrequire example.test/pad v1.0.0\n"), said: "example.test/half@v1.0.0: ", n: 4},
		"other bytes than go.sum's": {files: summed, reason: Unfetched, said: "checksum mismatch"},
		"without end":               {files: mod("require example.test/endless v1.0.0\n"), reason: HugeModule},
		"no proxy":                  {files: mod("require example.test/pad v1.0.0\n"), proxy: "direct", reason: Unfetched, said: "GOPROXY=off"},
		"a proxy with a password":   {files: mod("require example.test/gone v1.0.0\n"), proxy: secret, reason: Unfetched, said: "credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.proxy != "" {
				t.Setenv("GOPROXY", c.proxy)
			}
			f := newFetcher(t)
			f.most = 4 << 20
			set, err := f.get(t.Context(), "key", []map[string][]byte{c.files}, ".")
			n := len(slices.DeleteFunc(set.files(t), func(name string) bool { return !strings.Contains(name, "/pad/") }))
			said := set.lacks + set.because
			if err != nil || set.reason != c.reason || (c.said == "") != (said == "") || !strings.Contains(said, c.said) || n != c.n || strings.Contains(said, "hunter2") {
				t.Errorf("%+v, %v, %d files", set, err, n)
			}
		})
	}
	if said := newFetcher(t).plain("reading https://user:hunter2@proxy.test/a: 404 in /work/here/go.mod", "/work/here"); said != "reading https://proxy.test/a: 404 in /go.mod" {
		t.Error(said)
	}
	for _, name := range p.asked {
		if strings.Contains(name, "toolchain") || strings.Contains(name, "go-get") {
			t.Errorf("asked for %s", name)
		}
	}
}

// TestFetchFails: a proxy that does not answer is the machine's, and says nothing of a commit.
func TestFetchFails(t *testing.T) {
	p := newProxy(t)
	p.server.Close()
	f := newFetcher(t)
	if set, err := f.get(t.Context(), "key", []map[string][]byte{mod("require example.test/pad v1.0.0\n")}, "."); err == nil || !strings.Contains(err.Error(), "GOPROXY=off") {
		t.Errorf("%+v, %v", set, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if set, err := f.get(ctx, "key", []map[string][]byte{mod("")}, "."); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", set, err)
	}
}

// TestImportModules: a commit that takes a newer version of a module becomes a task that holds both, and is sound without a network.
func TestImportModules(t *testing.T) {
	sandboxtest.Require(t)
	p := newProxy(t)
	h := newHistory(t)
	uses := func(version string) map[string]string {
		return map[string]string{"go.mod": "module acme.test/stock\n\ngo 1.20\n\nrequire example.test/pad " + version + "\n", "go.sum": p.sum(t, version)}
	}
	first := uses("v1.0.0")
	maps.Copy(first, map[string]string{
		"stock.go":     "package stock\n\nimport \"example.test/pad\"\n\nfunc Line(s string) string { return pad.Pad(s) }\n",
		"line_test.go": goTest("TestLine", "\tif Line(\"a\") != \" a\" {\n\t\tt.Error()\n\t}"),
	})
	h.commit("Begin lines of a stock, with some space", first)
	second := uses("v1.1.0")
	maps.Copy(second, map[string]string{
		"version.go":      "package stock\n\nimport \"example.test/pad\"\n\nfunc Padded() string { return pad.Version }\n",
		"version_test.go": goTest("TestPadded", "\tif Padded() != \"v1.1.0\" {\n\t\tt.Error()\n\t}"),
	})
	h.commit("Tell by which version of the pad lines are padded", second)
	o := options(t, h)
	report, err := Import(t.Context(), o)
	if err != nil || len(report.Tasks) != 1 {
		got, _ := readState(report.State)
		t.Fatalf("%+v, %v, %+v", report, err, got)
	}
	p.server.Close()
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		if _, err := os.Stat(filepath.Join(o.Dir, report.Tasks[0], "environment/modules/example.test/pad/@v", version+".zip")); err != nil {
			t.Error(err)
		}
	}
	checkTasks(t, o, 1)
}

// sum is the go.sum of a version of the pad, as the go command writes it.
func (p *proxy) sum(t *testing.T, version string) string {
	t.Helper()
	f := newFetcher(t)
	if err := f.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	if err := writeFiles(work, mod("require example.test/pad "+version+"\n")); err != nil {
		t.Fatal(err)
	}
	_, said, err := f.run(t.Context(), work, filepath.Join(work, "cache"), work, proxies{p.server.URL, false}, "mod", "download", "all")
	text, readErr := os.ReadFile(filepath.Join(work, "go.sum"))
	if err := errors.Join(err, readErr); err != nil || said != "" {
		t.Fatalf("%v: %s", err, said)
	}
	return string(text)
}

// TestFailsFixed: why no test passes although the fix is there.
func TestFailsFixed(t *testing.T) {
	for name, c := range map[string]struct {
		log, lacks string
		want       Outcome
	}{
		"a module is not there":    {"a.go:3: no required module provides package a.test/a", "a.test/a@v1: 404", Outcome{Reason: Unfetched, Detail: "a.test/a@v1: 404"}},
		"a package is not there":   {"a.go:3: no required module provides package a.test/a", "", Outcome{Reason: Lacks, Detail: "no required module provides package"}},
		"it fails for itself":      {"--- FAIL: TestIt", "a.test/a@v1: 404", Outcome{Reason: FailsFixed, Detail: "--- FAIL: TestIt"}},
		"the sandbox has no space": {"write /tmp/x: no space left on device\nFAIL", "", Outcome{Reason: Cramped}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := (&importer{}).failsFixed(parts{}, "gotest", true, c.log, c.lacks, nil); err != nil || got != c.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
