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
)

// Reasons of a commit whose modules of Go are not to be had.
const (
	NoModule   = "no go.mod"
	Unfetched  = "modules that it needs cannot be fetched"
	NewerGo    = "needs a newer Go"
	Outside    = "go.mod leads out of the repository"
	HugeModule = "needs modules of more than 2 GiB"
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

// fetcher fetches modules of Go, and keeps them in a folder beside the tasks. The go command does it with go.mod and go.sum files alone: it runs nothing of the repository, sees
// no other file of it, starts no other program, and asks module proxies only.
type fetcher struct {
	dir string // an absolute path: it holds all modules of the import in "all", as a module proxy has them, and a folder for each set

	most int64 // bytes of one set

	mu   sync.Mutex // one fetch at a time
	user map[string]string
	sets map[string]moduleSet
}

// close removes the folders of sets. What tasks have of them stays, and what another import may need.
func (f *fetcher) close() {
	for _, set := range f.sets {
		if set.folder != "" {
			_ = os.RemoveAll(set.folder)
		}
	}
}

// moduleSet is what a commit's go.mod, and the one before it, need.
type moduleSet struct {
	folder  string // as a module proxy has it; "" where nothing is needed
	lacks   string // what the go command says of a module that is not to be had; tests may pass without
	reason  string // why the commit is no task
	because string // more of the reason
}

// modulesOf fetches what a Go module of a repository needs at a commit and at the one before it.
func (im *importer) modulesOf(ctx context.Context, c commit, names map[string]bool, module string) (moduleSet, error) {
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

// modFiles reads all go.mod and go.sum of a commit: a module's own may name others of the repository.
func (im *importer) modFiles(ctx context.Context, id string, names map[string]bool) (map[string][]byte, error) {
	var wanted []string
	for name := range names {
		if base := path.Base(name); (base == "go.mod" || base == "go.sum") && plainName.MatchString(name) && filepath.IsLocal(name) {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) > maxModFiles {
		return nil, errTooLong
	}
	files, err := im.objects.Files(ctx, id, wanted)
	total := 0
	for _, data := range files {
		total += len(data)
	}
	if total > maxModBytes {
		return nil, errTooLong
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
	set, err := f.fetch(ctx, work, key, sides, module)
	if err != nil {
		return moduleSet{}, fmt.Errorf("fetch modules of Go: %w", err)
	}
	f.sets[key] = set
	return set, nil
}

func (f *fetcher) fetch(ctx context.Context, work, key string, sides []map[string][]byte, module string) (set moduleSet, err error) {
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

// download fetches what a go.mod needs into a module cache: first of what is on this machine, and only then of proxies.
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
		return moduleSet{reason: Outside, because: outside}, err
	}
	for _, from := range f.proxies() {
		out, said, err = f.run(ctx, work, cache, dir, from, "mod", "download", "-json")
		if errors.Is(err, errHuge) {
			return moduleSet{reason: HugeModule}, nil
		}
		if err != nil {
			return set, err
		}
		list, complaint, err := downloaded(out)
		if err != nil {
			return set, err
		}
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
	if said := cmp.Or(set.lacks, set.because); unreachable.MatchString(said) {
		return set, fmt.Errorf("%s: is the module proxy reachable? With GOPROXY=off only modules that are on this machine are taken", said)
	}
	return set, nil
}

// unreachable is what the go command prints of a network, or a proxy, that does not work. It says nothing of a commit.
var unreachable = regexp.MustCompile(`dial (?:tcp|udp)|no such host|connection re(?:set|fused)|i/o timeout|TLS handshake|x509:|unexpected EOF|proxyconnect|: (?:429|5\d\d) |no space left`)

// proxies is a value of GOPROXY.
type proxies struct {
	list string
	here bool // files on this machine alone
}

// proxies are tried one after the other: files on this machine, then the user's proxies. Of "direct" nothing is left: it lets a go.mod name servers.
func (f *fetcher) proxies() []proxies {
	var here, all []string
	for _, folder := range []string{filepath.Join(f.dir, "all"), filepath.Join(f.user["GOMODCACHE"], "cache", "download")} {
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
		tried = append(tried, proxies{strings.Join(append(here, all...), ","), false})
	}
	return tried
}

// passed are the variables of this process that fetching needs.
var passed = []string{"PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// asked are the settings of the user's go command that fetching heeds.
var asked = []string{"GOPROXY", "GONOPROXY", "GONOSUMDB", "GOSUMDB", "GOMODCACHE"}

// ask asks the go command for the user's settings, once.
func (f *fetcher) ask(ctx context.Context) error {
	if f.user != nil {
		return nil
	}
	command := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, asked...)...)
	command.Dir = "/" // no go.mod that asks for another version
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GOWORK=off")
	out, err := command.Output()
	if err == nil {
		err = json.Unmarshal(out, &f.user)
	}
	return err
}

// errHuge says that a go.mod asks for more than is fetched.
var errHuge = errors.New(HugeModule)

// run runs the go command in a folder with nothing of this process's environment that it does not need. An error is the machine's; said is why the command failed.
func (f *fetcher) run(ctx context.Context, work, cache, dir string, from proxies, args ...string) (out []byte, said string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("it took more than %v", fetchTime))
	defer cancel()
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.WaitDelay = dir, 5*time.Second
	command.Env = []string{"HOME=" + work, "GOPATH=" + filepath.Join(work, "path"), "GOCACHE=" + filepath.Join(work, "build"), "GOMODCACHE=" + cache, "GOPROXY=" + from.list,
		"GOFLAGS=-modcacherw", "GOENV=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOVCS=*:off", "GOAUTH=off", "GOTELEMETRY=off"}
	for _, name := range asked[1:4] {
		command.Env = append(command.Env, name+"="+f.user[name])
	}
	if from.here {
		command.Env = append(command.Env, "GONOPROXY=none") // private modules are taken, too
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
	if errors.As(err, &exit) {
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

// downloaded counts the modules that "go mod download -json" tells of, and gives the first complaint about one.
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
			complaint = cmp.Or(complaint, one.Path+"@"+one.Version+": "+one.Error)
		}
	}
}

// leadsOut finds a folder outside of the repository that takes the place of a module, in what "go mod edit -json" says of a go.mod.
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
		if to := filepath.ToSlash(r.New.Path); r.New.Version == "" && (path.IsAbs(to) || !filepath.IsLocal(path.Join(module, to))) {
			return r.New.Path, nil
		}
	}
	return "", nil
}

var credentials = regexp.MustCompile(`//[^/@\s]*@`)

// plain is what the go command says without the names of folders of this machine and what a proxy's address may hold.
func (f *fetcher) plain(said, work string) string {
	return credentials.ReplaceAllString(strings.ReplaceAll(strings.ReplaceAll(said, work, ""), f.dir, ""), "//")
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

// kept are the endings of a module proxy's files.
var kept = []string{".info", ".mod", ".zip", ".ziphash"}

// keep moves what was fetched into folders that others read: the set's own, and that of all sets.
func keep(from, set, all string) (found bool, err error) {
	err = filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == from {
			return nil // nothing was needed
		}
		if err != nil || entry.IsDir() || !slices.Contains(kept, filepath.Ext(name)) {
			return err
		}
		inside, err := filepath.Rel(from, name)
		if err != nil || filepath.Base(filepath.Dir(name)) != "@v" {
			return err
		}
		place := filepath.Join(all, inside)
		if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
			half := place + ".new"
			if err := errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), copyFile(name, half), os.Rename(half, place)); err != nil {
				return err
			}
		}
		found = true
		linked := filepath.Join(set, inside)
		return errors.Join(os.MkdirAll(filepath.Dir(linked), 0o755), os.Link(place, linked))
	})
	return found, err
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, source)
	return errors.Join(err, file.Close())
}
