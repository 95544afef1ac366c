package commits

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/storage/whole"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Reasons of a commit whose modules of Go are not to be had.
const (
	NoModule         = "no go.mod"
	Unfetched        = "modules that it needs cannot be fetched"
	NewerGo          = "needs a newer Go"
	LeavesRepository = "go.mod leads out of the repository"
	HugeModule       = "needs modules of more than 2 GiB"
	SlowModules      = "needs modules that take more than 10 minutes to fetch"
)

// Bounds of fetching modules.
const (
	maxModFiles   = 400      // go.mod and go.sum of one commit
	maxModBytes   = 16 << 20 // of these together
	maxModules    = 2 << 30  // bytes of what is fetched, packed and unpacked
	fetchTime     = 10 * time.Minute
	watchEvery    = time.Second
	maxGoAnswer   = 32 << 20 // bytes of what the go command prints
	modulesFolder = ".modules"
)

// fetcher fetches modules of Go, and keeps them in a folder beside the tasks. The go command does
// it with go.mod and go.sum files alone: it runs nothing of the repository, sees no other file of
// it, starts no other program, and asks module proxies only.
type fetcher struct {
	// an absolute path: it holds all modules of the import in "all", as a module proxy has them,
	// and a folder for each set
	dir string

	most int64 // bytes of one set

	mu   sync.Mutex // one fetch at a time
	user map[string]string
	gate string // the address of what refuses private modules
	sets map[string]moduleSet
}

// close removes the folders of sets. Tasks keep their links to the files, and the folder of all
// sets stays for the next import.
func (f *fetcher) close() { closeSets(f.sets) }

func closeSets(sets map[string]moduleSet) {
	for _, set := range sets {
		if set.folder != "" {
			_ = os.RemoveAll(set.folder)
		}
	}
}

// moduleSet is what a commit's go.mod, and the one before it, need, or what its lock file asks for.
type moduleSet struct {
	folder  string // as a module proxy has it, or as sandbox.ReadNodePackages reads it; "" where nothing is needed
	lacks   string // what the go command says of a module that is not to be had; tests may pass without
	reason  string // why the commit is no task
	because string // more of the reason
	scripts string // packages of npm with install scripts, which do not run
}

// modulesOf fetches what a Go module of a repository needs at a commit and at the one before it.
func (im *maker) modulesOf(ctx context.Context, c commit, names map[string]bool, module string) (moduleSet, error) {
	if !names[path.Join(module, "go.mod")] {
		return moduleSet{reason: NoModule}, nil
	}
	if names[path.Join(module, "vendor", "modules.txt")] {
		return moduleSet{}, nil
	}
	before, err := treeOf(ctx, im.objects, c.parent)
	if err != nil {
		return moduleSet{}, err
	}
	var sides []map[string][]byte
	sum := sha256.New()
	fmt.Fprintln(sum, module)
	for _, side := range []struct {
		id    string
		names map[string]bool
	}{{c.id, names}, {c.parent, before}} {
		files, err := im.modFiles(ctx, side.id, side.names)
		if errors.Is(err, errTooLong) {
			return moduleSet{reason: TooLarge}, nil
		}
		if err != nil {
			return moduleSet{}, err
		}
		if files[path.Join(module, "go.mod")] == nil || len(sides) > 0 && maps.EqualFunc(sides[0], files, bytes.Equal) {
			continue
		}
		sides = append(sides, files)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(sum, "%q %x\n", name, sha256.Sum256(files[name]))
		}
	}
	return im.modules.get(ctx, fmt.Sprintf("%x", sum.Sum(nil)), sides, module)
}

// modFiles reads all go.mod and go.sum of a commit: a module's own may name
// others of the repository.
func (im *maker) modFiles(ctx context.Context, id string, names map[string]bool) (map[string][]byte, error) {
	var wanted []string
	for name := range names {
		if base := path.Base(name); (base == "go.mod" || base == "go.sum") && plainName.MatchString(name) &&
			filepath.IsLocal(name) {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) > maxModFiles {
		return nil, errTooLong
	}
	files, err := im.objects.Files(ctx, id, wanted, maxModBytes)
	if errors.Is(err, swebench.ErrFileSize) {
		err = errTooLong
	}
	return files, err
}

// get fetches a set once.
func (f *fetcher) get(ctx context.Context, key string, sides []map[string][]byte, module string) (moduleSet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if set, known := f.sets[key]; known {
		return set, nil
	}
	work, err := os.MkdirTemp("", "rondo-fetch-")
	if err != nil {
		return moduleSet{}, err
	}
	defer os.RemoveAll(work)
	// Telemetry of the go command would write into this folder when the command has ended,
	// and the folder is removed.
	err = writeFiles(work, map[string][]byte{".config/go/telemetry/mode": []byte("off")})
	var set moduleSet
	if err == nil {
		set, err = f.fetch(ctx, work, key, sides, module)
	}
	if err != nil {
		return moduleSet{}, fmt.Errorf("fetch modules of Go: %w", err)
	}
	f.sets[key] = set
	return set, nil
}

func (f *fetcher) fetch(ctx context.Context, work, key string, sides []map[string][]byte,
	module string) (set moduleSet, err error) {
	if err := f.ask(ctx); err != nil {
		return set, err
	}
	cache := filepath.Join(work, "modules")
	for n, files := range sides {
		top := filepath.Join(work, fmt.Sprint("side-", n))
		if err := writeFiles(top, files); err != nil {
			return set, err
		}
		one, err := f.download(ctx, work, cache, top, module)
		if err != nil || one.reason != "" {
			return one, err
		}
		set.lacks = cmp.Or(set.lacks, one.lacks)
	}
	folder := filepath.Join(f.dir, key)
	if err := os.RemoveAll(folder); err != nil {
		return set, err
	}
	found, err := keep(filepath.Join(cache, "cache", "download"), folder, filepath.Join(f.dir, "all"))
	if found {
		set.folder = folder
	}
	return set, err
}

// download fetches what a go.mod needs into a module cache: first of what is on this machine,
// and only then of proxies.
func (f *fetcher) download(ctx context.Context, work, cache, top, module string) (set moduleSet, err error) {
	dir := filepath.Join(top, filepath.FromSlash(module))
	out, said, err := f.run(ctx, work, cache, dir, proxies{"off", true}, "mod", "edit", "-json")
	if err != nil {
		return set, err
	}
	if said != "" {
		return moduleSet{reason: Unfetched, because: f.plain(said, work)}, nil
	}
	if outside, err := leadsOut(out, module); err != nil || outside != "" {
		return moduleSet{reason: LeavesRepository, because: outside}, err
	}
	refuse, err := f.refusePrivate()
	if err != nil {
		return set, err
	}
	defer refuse.Close()
	machine := false
	for _, from := range f.proxies() {
		out, said, err = f.run(ctx, work, cache, dir, from, "mod", "download", "-json")
		if errors.Is(err, errHuge) {
			return moduleSet{reason: HugeModule}, nil
		}
		if errors.Is(err, errLong) {
			return moduleSet{reason: SlowModules}, nil
		}
		if err != nil {
			return set, err
		}
		list, complaint, err := downloaded(out)
		if err != nil {
			return set, err
		}
		machine = isMachines(cmp.Or(complaint, said))
		switch {
		case complaint != "":
			set = moduleSet{lacks: f.plain(complaint, work)}
		case said != "" && list == 0:
			set = moduleSet{reason: Unfetched, because: f.plain(said, work)}
			if strings.Contains(said, "requires go >= ") {
				set.reason = NewerGo
			}
		default:
			return moduleSet{}, nil
		}
	}
	if machine {
		return set, fmt.Errorf("%s: is the module proxy reachable? With GOPROXY=off only modules that are on this machine are taken",
			cmp.Or(set.lacks, set.because))
	}
	return set, nil
}

// isMachines reports whether what the go command says is of a network, a proxy or a disk that does
// not work, and so nothing of a commit. The text that a server sends with its answer does not
// count: some servers tell of networks that did not work for them.
func isMachines(said string) bool {
	said, _, _ = strings.Cut(said, "server response:")
	return !definite.MatchString(said) && broken.MatchString(said)
}

// definite is what the go command prints of a module that is not to be had, on whatever machine.
var definite = regexp.MustCompile(`: (?:404|410) |checksum mismatch|unknown revision|parsing \S*go\.mod`)

var broken = regexp.MustCompile(`(?:dial|read|write) (?:tcp|udp)|no such host|connection re(?:set|fused)|broken pipe|i/o timeout|deadline exceeded|Client\.Timeout|net/http: |http2: |stream error: ` +
	`|TLS handshake|tls: |x509: |: EOF\b|unexpected EOF|proxyconnect tcp|: (?:401|403|407|408|429|5\d\d) ` +
	`|no space left|quota exceeded|too many open files|cannot allocate memory|input/output error|read-only file system`)

// proxies is a value of GOPROXY.
type proxies struct {
	list string
	here bool // files on this machine alone
}

// proxies are tried one after the other: files on this machine, then the user's proxies. Of
// "direct" nothing is left: it lets a go.mod name servers.
func (f *fetcher) proxies() []proxies {
	var here, all []string
	for _, folder := range []string{filepath.Join(f.dir, "all"),
		filepath.Join(f.user["GOMODCACHE"], "cache", "download")} {
		if _, err := os.Stat(folder); err == nil && !strings.ContainsAny(folder, ",|") {
			here = append(here, (&url.URL{Scheme: "file", Path: folder}).String())
		}
	}
	for one := range strings.FieldsFuncSeq(f.user["GOPROXY"], func(r rune) bool { return r == ',' || r == '|' }) {
		if one = strings.TrimSpace(one); one == "off" {
			break
		} else if one != "direct" && one != "" {
			all = append(all, one)
		}
	}
	tried := []proxies{{cmp.Or(strings.Join(here, ","), "off"), true}}
	if len(all) > 0 {
		tried = append(tried, proxies{strings.Join(slices.Concat(here, []string{f.gate}, all), ","), false})
	}
	return tried
}

// refusePrivate serves a proxy that has nothing, and refuses the user's private modules so
// that none behind it is asked for them. The go command itself would look for them on
// servers that a go.mod names.
func (f *fetcher) refusePrivate() (io.Closer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/@")
			if isPrivate(f.user["GONOPROXY"], name) {
				http.Error(w, "private modules (GONOPROXY) are taken from this machine's module cache alone",
					http.StatusBadRequest)
				return
			}
			http.NotFound(w, r)
		})}
	f.gate = "http://" + listener.Addr().String()
	go server.Serve(listener)
	return server, nil
}

// isPrivate reports whether patterns of the go command match a module's path, or a folder above it,
// as a proxy is asked for it: with !x for X.
func isPrivate(patterns, name string) bool {
	name = capital.ReplaceAllStringFunc(name, func(mark string) string { return strings.ToUpper(mark[1:]) })
	parts := strings.Split(name, "/")
	for pattern := range strings.SplitSeq(patterns, ",") {
		pattern = strings.TrimSuffix(strings.TrimSpace(pattern), "/")
		n := min(strings.Count(pattern, "/")+1, len(parts))
		if matches, err := path.Match(pattern, strings.Join(parts[:n], "/")); err == nil && matches {
			return true
		}
	}
	return false
}

var capital = regexp.MustCompile(`![a-z]`)

// passed are the variables of this process that fetching needs.
var passed = []string{"PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR"}

// goSettings are the settings of the user's go command that fetching heeds.
var goSettings = []string{"GOROOT", "GOPROXY", "GONOPROXY", "GONOSUMDB", "GOSUMDB", "GOMODCACHE"}

// ask asks the go command for the user's settings, once. It may be a version manager's, which needs
// the user's environment; what fetches is the one that GOROOT has.
func (f *fetcher) ask(ctx context.Context) error {
	if f.user != nil {
		return nil
	}
	command := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, goSettings...)...)
	command.Dir = "/" // no go.mod that asks for another version
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GOWORK=off")
	out, err := command.Output()
	user := map[string]string{}
	if err == nil {
		err = json.Unmarshal(out, &user)
	}
	if err == nil && user["GOROOT"] == "" {
		err = errors.New("go env does not say where GOROOT is")
	}
	if err != nil {
		return err
	}
	f.user = user
	return nil
}

// errHuge says that a go.mod asks for more than is fetched.
var errHuge = errors.New(HugeModule)

// errLong says that fetching takes longer than it may.
var errLong = errors.New(SlowModules)

// run runs the go command in a folder with nothing of this process's environment that it does not
// need. An error is the machine's; said is why the command failed.
func (f *fetcher) run(ctx context.Context, work, cache, dir string, from proxies,
	args ...string) (out []byte, said string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, errLong)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(f.user["GOROOT"], "bin", "go"), args...)
	command.Dir, command.WaitDelay = dir, 5*time.Second
	command.Env = []string{"HOME=" + work, "GOROOT=" + f.user["GOROOT"], "GOPATH=" + filepath.Join(work, "path"),
		"GOCACHE=" + filepath.Join(work, "build"), "GOMODCACHE=" + cache, "GOPROXY=" + from.list,
		"GOFLAGS=-modcacherw", "GOENV=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOVCS=*:off", "GOAUTH=off",
		"GONOPROXY=none", "GONOSUMDB=" + f.user["GONOSUMDB"] + "," + f.user["GONOPROXY"],
		"GOSUMDB=" + f.user["GOSUMDB"]}
	if from.here {
		command.Env = append(command.Env, "GOSUMDB=off") // it would be asked for what go.sum does not have
	}
	for _, name := range passed {
		if value, set := os.LookupEnv(name); set {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	answer, complaint := &bounded{most: maxGoAnswer}, &bounded{most: maxPatch}
	command.Stdout, command.Stderr = answer, complaint
	if err := command.Start(); err != nil {
		return nil, "", err
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watch(ctx, cache, stop)
	}()
	err = command.Wait()
	cause := context.Cause(ctx)
	cancel()
	<-watched
	if cause != nil {
		return nil, "", cause
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 { // no signal
		return answer.Bytes(), cmp.Or(strings.TrimSpace(complaint.String()), err.Error()), nil
	}
	return answer.Bytes(), "", err
}

// watch stops a fetch whose folder becomes too large.
func (f *fetcher) watch(ctx context.Context, folder string, stop context.CancelCauseFunc) {
	for tick := time.NewTicker(watchEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		total := int64(0)
		_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil // files come and go
			}
			if info, err := entry.Info(); err == nil {
				total += info.Size()
			}
			return nil
		})
		if total > f.most {
			stop(errHuge)
		}
	}
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(data []byte) (int, error) {
	b.Buffer.Write(data[:min(len(data), b.most-b.Len())])
	return len(data), nil
}

// downloaded counts the modules that "go mod download -json" tells of, and gives the first
// complaint about one, or that of this machine.
func downloaded(out []byte) (n int, complaint string, err error) {
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; n++ {
		var one struct{ Path, Version, Error string }
		if err := decoder.Decode(&one); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, complaint, err
		}
		if one.Error != "" {
			if said := one.Path + "@" + one.Version + ": " + one.Error; complaint == "" ||
				isMachines(said) && !isMachines(complaint) {
				complaint = said
			}
		}
	}
}

// leadsOut finds a folder outside of the repository that takes the place of a module, in what "go
// mod edit -json" says of a go.mod.
func leadsOut(out []byte, module string) (string, error) {
	var file struct {
		Replace []struct {
			New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return "", err
	}
	for _, r := range file.Replace {
		if to := filepath.ToSlash(r.New.Path); r.New.Version == "" &&
			(path.IsAbs(to) || !filepath.IsLocal(path.Join(module, to))) {
			return r.New.Path, nil
		}
	}
	return "", nil
}

var credentials = regexp.MustCompile(`//[^/@\s]*@`)

// plain is what the go command says without the names of folders of this machine and the addresses
// of proxies, which may hold secrets anywhere.
func (f *fetcher) plain(said, work string) string {
	for _, folder := range []string{work, f.dir, f.user["GOMODCACHE"], f.gate} {
		said = strings.ReplaceAll(said, folder, "")
	}
	said = credentials.ReplaceAllString(said, "//")
	var addresses []string
	for one := range strings.FieldsFuncSeq(f.user["GOPROXY"]+","+f.user["GOSUMDB"],
		func(r rune) bool { return strings.ContainsRune(",| ", r) }) {
		if parsed, err := url.Parse(one); err == nil && parsed.Host != "" {
			addresses = append(addresses, one, parsed.String())
		}
	}
	slices.SortFunc(addresses, func(a, b string) int { return len(b) - len(a) }) // one may begin with another
	for _, one := range addresses {
		said = strings.ReplaceAll(said, strings.TrimRight(credentials.ReplaceAllString(one, "//"), "/"), "proxy")
	}
	return said
}

func writeFiles(top string, files map[string][]byte) error {
	if err := os.MkdirAll(top, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	for name, data := range files {
		if err := errors.Join(root.MkdirAll(path.Dir(name), 0o755), root.WriteFile(name, data, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// proxyEndings are the endings of a module proxy's files.
var proxyEndings = []string{".info", ".mod", ".zip", ".ziphash"}

// keep moves what was fetched into folders that others read: the set's own, and that of all sets.
func keep(from, set, all string) (found bool, err error) {
	err = filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == from {
			return nil // nothing was needed
		}
		if err != nil || entry.IsDir() || !slices.Contains(proxyEndings, filepath.Ext(name)) {
			return err
		}
		inside, err := filepath.Rel(from, name)
		if err != nil || filepath.Base(filepath.Dir(name)) != "@v" {
			return err
		}
		if filepath.Ext(name) == ".info" {
			if err := shorten(name); err != nil {
				return err
			}
		}
		place, linked := filepath.Join(all, inside), filepath.Join(set, inside)
		if err := publish(name, place); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(linked), 0o755); err != nil {
			return err
		}
		found = true
		return swebench.LinkFile(place, linked)
	})
	return found, err
}

// shorten leaves of what a proxy tells of a version only the version: the rest differs between
// proxies, and may name a private repository.
func shorten(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var info struct{ Version string }
	if err := json.Unmarshal(data, &info); err != nil {
		return err
	}
	if data, err = json.Marshal(info); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// publish puts a copy of a file at a place that others read. A file of the same size stays there,
// and another is replaced.
func publish(name, place string) error {
	fetched, err := os.Stat(name)
	if err != nil {
		return err
	}
	if there, err := os.Lstat(place); err == nil && there.Size() == fetched.Size() {
		return nil
	}
	return whole.Copy(name, place)
}
