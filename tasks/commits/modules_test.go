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
			for range 1 << 10 { // 64 MiB, and then nothing more
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
			<-r.Context().Done()
			return
		}
		http.FileServer(http.Dir(p.folder)).ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	for name, value := range map[string]string{
		"GOPROXY": p.server.URL + ",direct", "GOSUMDB": "off", "GOMODCACHE": t.TempDir(),
		"GOFLAGS": "-mod=vendor -modfile=/nowhere/go.mod", "GOPRIVATE": "", "GONOPROXY": "", "GONOSUMDB": "",
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
		"pad.go": "package pad\n\n// Pad pads.\nfunc Pad(s string) string { return \" \" + s }\n\nconst Version = \"" +
			version + "\"\n",
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
	told := `{"Version":"v1.0.0","Time":"2026-01-31T00:00:00Z","Origin":{"VCS":"git","URL":"https://git.internal.test/pad"}}`
	if err := os.WriteFile(filepath.Join(p.folder, "example.test/pad/@v/v1.0.0.info"),
		[]byte(told), 0o644); err != nil {
		t.Fatal(err)
	}
	sides := []map[string][]byte{mod("require example.test/pad v1.1.0\n"), mod("require example.test/pad v1.0.0\n")}
	set, err := f.get(t.Context(), "one", sides, ".")
	var want []string
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		for _, ending := range proxyEndings {
			want = append(want, "example.test/pad/@v/"+version+ending)
		}
	}
	slices.Sort(want)
	if got := set.files(t); err != nil || set.lacks != "" || set.reason != "" || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, %q", set, err, got)
	}
	if info, err := os.ReadFile(filepath.Join(set.folder, "example.test/pad/@v/v1.0.0.info")); err != nil ||
		string(info) != `{"Version":"v1.0.0"}` {
		t.Errorf("%s, %v", info, err)
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

// TestFetchRefuses: what a go.mod asks for beyond modules of a proxy is a named
// reason, or not to be had.
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
		"nothing":        {files: mod("")},
		"a folder of it": {files: inside, n: 4},
		"a folder beside it": {files: mod("require a.test/a v0.0.0\nreplace a.test/a => ../a\n"),
			reason: LeavesRepository, said: "../a"},
		"a folder of this machine": {files: mod("require a.test/a v0.0.0\nreplace a.test/a => /etc\n"),
			reason: LeavesRepository, said: "/etc"},
		"another toolchain": {files: mod("toolchain go1.99.0\nrequire example.test/pad v1.0.0\n"), n: 4},
		"a newer Go": {files: map[string][]byte{"go.mod": []byte("module a.test/a\n\ngo 1.99\n")},
			reason: NewerGo, said: "1.99"},
		"no go.mod":         {files: mod("nonsense\n"), reason: Unfetched, said: "nonsense"},
		"an unknown module": {files: mod("require example.test/gone v1.0.0\n"), reason: Unfetched, said: "404"},
		"a module without files": {files: mod("require example.test/half v1.0.0\nrequire example.test/pad v1.0.0\n"),
			said: "example.test/half@v1.0.0: ", n: 4},
		"other bytes than go.sum's": {files: summed, reason: Unfetched, said: "checksum mismatch"},
		"without end":               {files: mod("require example.test/endless v1.0.0\n"), reason: HugeModule},
		"no proxy": {files: mod("require example.test/pad v1.0.0\n"), proxy: "direct",
			reason: Unfetched, said: "GOPROXY=off"},
		"a proxy with a password": {files: mod("require example.test/gone v1.0.0\n"), proxy: secret,
			reason: Unfetched, said: "credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.proxy != "" {
				t.Setenv("GOPROXY", c.proxy)
			}
			f := newFetcher(t)
			f.most = 4 << 20
			set, err := f.get(t.Context(), "key", []map[string][]byte{c.files}, ".")
			n := len(slices.DeleteFunc(set.files(t), func(name string) bool {
				return !strings.Contains(name,
					"/pad/")
			}))
			said := set.lacks + set.because
			if err != nil || set.reason != c.reason || (c.said == "") != (said == "") ||
				!strings.Contains(said, c.said) || n != c.n || strings.Contains(said, "hunter2") {
				t.Errorf("%+v, %v, %d files", set, err, n)
			}
		})
	}
	for _, name := range p.asked {
		if strings.Contains(name, "toolchain") || strings.Contains(name, "go-get") {
			t.Errorf("asked for %s", name)
		}
	}
}

// TestPlain: what is told of a commit names no folder of this machine, and
// nothing of a proxy's address.
func TestPlain(t *testing.T) {
	f := &fetcher{dir: "/tasks/.modules", gate: "http://127.0.0.1:99", user: map[string]string{
		"GOPROXY": "https://proxy.test,https://proxy.test/t0ken/|https://user:hunter2@other.test/go,direct",
		"GOSUMDB": "sum.test https://sum.test/t0ken", "GOMODCACHE": "/home/me/go/pkg/mod",
	}}
	for said, want := range map[string]string{
		"reading https://proxy.test/t0ken/a/@v/v1.mod: 404 in /work/here/go.mod": "reading proxy/a/@v/v1.mod: 404 in /go.mod",
		"reading https://proxy.test/a/@v/v1.mod: 404":                            "reading proxy/a/@v/v1.mod: 404",
		`Get "https://user:xxxxx@other.test/go/a/@v/v1.mod": EOF`:                `Get "proxy/a/@v/v1.mod": EOF`,
		`Get "https://user:***@other.test/go/a": EOF`:                            `Get "proxy/a": EOF`,
		"reading https://sum.test/t0ken/lookup/a@v1: 404":                        "reading proxy/lookup/a@v1: 404",
		"reading https://user:hunter2@elsewhere.test/a: 404":                     "reading https://elsewhere.test/a: 404",
		"reading file:///home/me/go/pkg/mod/cache/a: no such file":               "reading file:///cache/a: no such file",
		"reading http://127.0.0.1:99/a/@v/v1.mod: 400 Bad Request":               "reading /a/@v/v1.mod: 400 Bad Request",
	} {
		if got := f.plain(said, "/work/here"); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}

// TestMachines: which complaints are of this machine and its network, and which of a commit.
func TestMachines(t *testing.T) {
	const reading = "a.test/a@v1.0.0: reading https://proxy.test/a.test/a/@v/v1.0.0.mod: "
	for said, want := range map[string]bool{
		reading + "404 Not Found": false,
		reading + "404 Not Found\n\tserver response:\n\tnot found: a.test/a@v1.0.0: unrecognized import path: dial tcp: lookup a.test: no such host": false,
		reading + "410 Gone\n\tserver response: unexpected EOF":                   false,
		"a.test/a@v1.0.0: verifying module: checksum mismatch":                    false,
		"a.test/a@v1.0.0: invalid version: unknown revision v1":                   false,
		"go: parsing ../a/go.mod: unknown directive: broken pipe":                 false,
		reading + "401 Unauthorized":                                              true,
		reading + "403 Forbidden":                                                 true,
		reading + "407 Proxy Authentication Required":                             true,
		reading + "408 Request Timeout":                                           true,
		reading + "429 Too Many Requests":                                         true,
		reading + "502 Bad Gateway\n\tserver response: 404 Not Found":             true,
		`Get "https://proxy.test/a": dial tcp: lookup proxy.test: no such host`:   true,
		`Get "https://proxy.test/a": EOF`:                                         true,
		"write tcp 10.0.0.1:1->10.0.0.2:443: write: broken pipe":                  true,
		"http2: server sent GOAWAY and closed the connection":                     true,
		"write /tmp/a: no space left on device":                                   true,
		"module lookup disabled by GOPROXY=off":                                   false,
		`Get "https://proxy.test/a": net/http: timeout awaiting response headers`: true,
		`Get "https://proxy.test/a": context deadline exceeded`:                   true,
	} {
		if isMachines(said) != want {
			t.Errorf("%q: %v", said, !want)
		}
	}
	const list = `{"Path":"a.test/a","Version":"v1","Error":"reading p: 404 Not Found"} {"Path":"a.test/b","Version":"v1","Error":"dial tcp: no such host"} {"Path":"a.test/c","Version":"v1"}`
	if n, complaint, err := downloaded([]byte(list)); n != 3 ||
		complaint != "a.test/b@v1: dial tcp: no such host" || err != nil {
		t.Errorf("%d, %s, %v", n, complaint, err)
	}
}

// TestFetchIsKilled: the go command is that of GOROOT, and its end by a signal
// says nothing of a commit.
func TestFetchIsKilled(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "bin"), 0o755),
		os.WriteFile(filepath.Join(root, "bin/go"), []byte("#!/bin/sh\nkill -9 $$\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t)
	f.user = map[string]string{"GOROOT": root}
	if set, err := f.get(t.Context(), "key", []map[string][]byte{mod("")}, "."); err == nil ||
		!strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("%+v, %v", set, err)
	}
}

// TestKeep: what cannot be copied whole is not there, and what is there with
// another size is replaced.
func TestKeep(t *testing.T) {
	from, all := t.TempDir(), t.TempDir()
	const name = "a.test/a/@v/v1.0.0.zip"
	source, place := filepath.Join(from, name), filepath.Join(all, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(source), 0o755), os.Symlink(t.TempDir(), source)); err != nil {
		t.Fatal(err)
	}
	if _, err := keep(from, t.TempDir(), all); err == nil {
		t.Error("a folder is copied")
	}
	if left, err := os.ReadDir(filepath.Dir(place)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	err := errors.Join(os.Remove(source), os.WriteFile(source, []byte("whole"), 0o644),
		os.WriteFile(place, []byte("who"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	set := t.TempDir()
	if found, err := keep(from, set, all); err != nil || !found {
		t.Errorf("%v, %v", found, err)
	}
	for _, folder := range []string{all, set} {
		if data, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(data) != "whole" {
			t.Errorf("%s: %q, %v", folder, data, err)
		}
	}
}

// TestFetchAsksNoOther: where only this machine's modules are asked for, no other machine is, and
// private ones are asked for nowhere else.
func TestFetchAsksNoOther(t *testing.T) {
	p := newProxy(t)
	p.module(t, "example.test/Own/pad", "v1.0.0", "go 1.20\n")
	t.Setenv("GOSUMDB", "sum.golang.org "+p.server.URL)
	t.Setenv("GONOPROXY", "example.test/Own")
	cache := t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	if err := errors.Join(os.Mkdir(filepath.Join(cache, "cache"), 0o755),
		os.Symlink(p.folder, filepath.Join(cache, "cache/download"))); err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t)
	if set, err := f.get(t.Context(), "here", []map[string][]byte{mod(
		"require example.test/Own/pad v1.0.0\nrequire example.test/pad v1.0.0\n")}, "."); err != nil ||
		len(set.files(t)) != 8 {
		t.Errorf("%+v, %v", set, err)
	}
	if err := os.Remove(filepath.Join(cache, "cache/download")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOSUMDB", "off")
	p.module(t, "example.test/over", "v1.0.0", "go 1.16\n\nrequire example.test/Own/pad v1.0.0\n")
	set, err := newFetcher(t).get(t.Context(), "away", []map[string][]byte{mod("require example.test/over v1.0.0\n")},
		".")
	if err != nil || set.reason != Unfetched || !strings.Contains(set.because, "GONOPROXY") ||
		strings.Contains(set.because, "127.0.0.1") {
		t.Errorf("%+v, %v", set, err)
	}
	for _, name := range p.asked {
		if !strings.HasPrefix(name, "/example.test/over/") {
			t.Errorf("asked for %s", name)
		}
	}
}

// TestPrivate: which paths the go command's patterns match.
func TestPrivate(t *testing.T) {
	for name, want := range map[string]bool{"corp.test/a/b": true, "git.x.test/a": true, "a.test/!corp/b": true,
		"a.test/corp/b": false, "a.test": false, "corp.test.evil/a": false} {
		if isPrivate("corp.test, *.x.test/,a.test/Corp", name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	if isPrivate("", "a.test/a") {
		t.Error("no pattern matches")
	}
}

// TestFetchFails: a proxy that does not answer is the machine's, and says nothing of a commit.
func TestFetchFails(t *testing.T) {
	p := newProxy(t)
	p.server.Close()
	f := newFetcher(t)
	if set, err := f.get(t.Context(), "key", []map[string][]byte{mod("require example.test/pad v1.0.0\n")},
		"."); err == nil || !strings.Contains(err.Error(), "GOPROXY=off") {
		t.Errorf("%+v, %v", set, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if set, err := f.get(ctx, "key", []map[string][]byte{mod("")}, "."); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", set, err)
	}
}

// TestImportModules: a commit that takes a newer version of a module becomes a task that holds
// both, and is sound without a network.
func TestImportModules(t *testing.T) {
	sandboxtest.Require(t)
	p := newProxy(t)
	h := newHistory(t)
	uses := func(version string) map[string]string {
		return map[string]string{"go.mod": "module acme.test/stock\n\ngo 1.20\n\nrequire example.test/pad " + version +
			"\n", "go.sum": p.sum(t, version)}
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
		if _, err := os.Stat(filepath.Join(o.Dir, report.Tasks[0],
			"environment/modules/example.test/pad/@v", version+".zip")); err != nil {
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
	_, said, err := f.run(t.Context(), work, filepath.Join(work, "cache"), work, proxies{p.server.URL, false},
		"mod", "download", "all")
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
		"a module is not there": {"a.go:3: no required module provides package a.test/a", "a.test/a@v1: 404",
			Outcome{Reason: Unfetched, Detail: "a.test/a@v1: 404"}},
		"a package is not there": {"a.go:3: no required module provides package a.test/a", "",
			Outcome{Reason: Lacks, Detail: "no required module provides package"}},
		"it fails for itself": {"--- FAIL: TestIt", "a.test/a@v1: 404",
			Outcome{Reason: FailsFixed, Detail: "--- FAIL: TestIt"}},
		"the sandbox has no space": {"write /tmp/x: no space left on device\nFAIL", "", Outcome{Reason: Cramped}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := (&importer{}).failsFixed(parts{}, "gotest", true, c.log, moduleSet{lacks: c.lacks},
				nil); err != nil || got != c.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
