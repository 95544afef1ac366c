package commits

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage/whole"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Reasons of a commit whose packages are not to be had.
const (
	Unpackable   = "packages that cannot be unpacked"
	OwnPackages  = "node_modules in the repository"
	HugePackages = "needs packages of more than 2 GiB"
	SlowPackages = "needs packages that take more than 10 minutes to fetch"
)

// Bounds of fetching packages.
const (
	maxLock  = 16 << 20 // bytes of a lock file
	fetchers = 6        // at once
	npmTime  = time.Minute
)

// packages fetches packages of npm from a registry, as a lock file names them, and keeps them in a
// folder beside the tasks. npm itself runs nowhere: neither it nor anything else on this machine
// acts on a repository's text.
type packages struct {
	dir    string // an absolute path: it holds all archives in "npm" and a folder for each set
	client *http.Client
	most   int64 // bytes of one set

	mu       sync.Mutex // one fetch at a time
	registry *url.URL
	sets     map[string]moduleSet
	sums     sync.Map // SHA-512 of archives of which no lock file says it, by their paths: strings
}

func newPackages(dir string) *packages {
	return &packages{dir: dir, most: sandbox.MaxNodeBytes, sets: map[string]moduleSet{},
		client: &http.Client{CheckRedirect: func(to *http.Request, via []*http.Request) error {
			if to.URL.Scheme != "https" || len(via) > 5 {
				return errors.New("the registry leads elsewhere")
			}
			return nil
		}}}
}

func (p *packages) close() { closeSets(p.sets) }

// packagesOf fetches what the lock file of a commit asks for. A commit without dependencies of its
// own whose tests node runs by itself needs none.
func (im *maker) packagesOf(ctx context.Context, c commit, names map[string]bool, m manifest,
	program string) (moduleSet, error) {
	for name := range names {
		if name == "node_modules" || strings.HasPrefix(name, "node_modules/") {
			return moduleSet{reason: OwnPackages}, nil
		}
	}
	if m.Workspaces != nil {
		return moduleSet{reason: Workspaces}, nil
	}
	at := slices.IndexFunc(lockFiles, func(name string) bool { return names[name] })
	if at < 0 {
		if program == "node" && len(m.Dependencies)+len(m.PeerDependencies)+len(m.OptionalDependencies) == 0 {
			return moduleSet{}, nil
		}
		return moduleSet{reason: NoLock}, nil
	}
	files, err := im.objects.Files(ctx, c.id, lockFiles[at:at+1], maxLock)
	if errors.Is(err, swebench.ErrFileSize) {
		return moduleSet{reason: OddLock, because: fmt.Sprintf("more than %d bytes", maxLock)}, nil
	}
	if err != nil {
		return moduleSet{}, err
	}
	list, err := readLock(files[lockFiles[at]], thisSystem())
	if no := (refusal{}); errors.As(err, &no) {
		return moduleSet{reason: no.reason, because: no.because}, nil
	}
	return im.packages.get(ctx, list)
}

// get fetches a set once.
func (p *packages) get(ctx context.Context, list []lockedPackage) (moduleSet, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set, err := p.sign(ctx, list); err != nil || set.reason != "" {
		return set, err
	}
	plain, scripts := []sandbox.NodePackage{}, []string{}
	for _, one := range list {
		if plain = append(plain, one.NodePackage); one.script {
			scripts = append(scripts, one.Path)
		}
	}
	if len(plain) == 0 {
		return moduleSet{}, nil
	}
	data, err := sandbox.WriteNodePackages(plain)
	if err != nil {
		return moduleSet{reason: OddLock, because: err.Error()}, nil
	}
	key := fmt.Sprintf("npm-%x", sha256.Sum256(data))
	if set, known := p.sets[key]; known {
		return set, nil
	}
	set, err := p.fetch(ctx, list)
	if err == nil && set.reason == "" {
		set.folder, set.scripts = filepath.Join(p.dir, key), strings.Join(scripts, ", ")
		err = p.lay(set.folder, data, list)
	}
	if err != nil {
		return moduleSet{}, err
	}
	p.sets[key] = set
	return set, nil
}

// sign gives those packages their SHA-512 of which the lock file has none: npm takes them as the
// registry has them, and the task says from then on what they are.
func (p *packages) sign(ctx context.Context, list []lockedPackage) (set moduleSet, err error) {
	var unsigned []lockedPackage
	for _, one := range list {
		if _, known := p.sums.Load(one.path); one.SHA512 == "" && !known {
			unsigned = append(unsigned, one)
		}
	}
	if len(unsigned) > 0 {
		key := fmt.Sprintf("unsigned %v", unsigned)
		if refused, known := p.sets[key]; known {
			return refused, nil
		}
		if set, err = p.fetch(ctx, unsigned); err == nil && set.reason != "" {
			p.sets[key] = set
		}
	}
	for n, one := range list {
		if sum, known := p.sums.Load(one.path); known && one.SHA512 == "" {
			list[n].SHA512 = sum.(string)
		}
	}
	return set, err
}

// lay makes the folder of a set, of links to the archives.
func (p *packages) lay(folder string, data []byte, list []lockedPackage) error {
	err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755))
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, sandbox.NodePackageList), data, 0o644)
	}
	laid := map[string]bool{}
	for _, one := range list {
		if err == nil && !laid[one.SHA512] {
			err = swebench.LinkFile(p.archive(one), filepath.Join(folder, one.SHA512+".tgz"))
		}
		laid[one.SHA512] = true
	}
	return err
}

func (p *packages) archive(one lockedPackage) string {
	return filepath.Join(p.dir, "npm", one.SHA512+".tgz")
}

// fetch fetches what is not there yet, some at once. The set that it answers has a reason where
// something is not to be had.
func (p *packages) fetch(ctx context.Context, list []lockedPackage) (set moduleSet, err error) {
	if err := p.ask(ctx); err != nil {
		return set, fmt.Errorf("fetch packages of npm: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, refusal{reason: SlowPackages})
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var left atomic.Int64
	left.Store(p.most)
	work := make(chan lockedPackage)
	var workers sync.WaitGroup
	for range fetchers {
		workers.Go(func() {
			for one := range work {
				if err := p.one(ctx, one, &left); err != nil {
					stop(err)
				}
			}
		})
	}
	known := map[string]bool{}
	for _, one := range list {
		if key := cmp.Or(one.SHA512, one.path); !known[key] {
			known[key] = true
			work <- one
		}
	}
	close(work)
	workers.Wait()
	err = context.Cause(ctx)
	if no := (refusal{}); errors.As(err, &no) {
		return moduleSet{reason: no.reason, because: no.because}, nil
	}
	if err != nil {
		err = fmt.Errorf("fetch packages of npm: %w", err)
	}
	return set, err
}

// one fetches a package's archive into the folder, if it is not there. A fault of the package is a
// refusal. A fault of this machine or of the registry is another error.
func (p *packages) one(ctx context.Context, one lockedPackage, left *atomic.Int64) error {
	if known, err := os.Open(p.archive(one)); err == nil {
		defer known.Close()
		sum := sha512.New()
		if n, err := io.Copy(sum, known); err == nil && hex.EncodeToString(sum.Sum(nil)) == one.SHA512 {
			return spend(left, n)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	at := *p.registry
	at.Path = strings.TrimSuffix(at.Path, "/") + one.path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "rondo")
	response, err := p.client.Do(request)
	if err != nil {
		return p.plain(ctx, one, err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	// this package alone
	case http.StatusNotFound, http.StatusGone, http.StatusUnauthorized, http.StatusForbidden,
		http.StatusUnavailableForLegalReasons:
		return refusal{Unfetched, fmt.Sprintf("%s: the registry answered %d", one.path, response.StatusCode)}
	default:
		return fmt.Errorf("%s: the registry answered %d", one.path, response.StatusCode)
	}
	into, signed := p.archive(one), one.SHA512 != ""
	if !signed {
		into = filepath.Join(p.dir, "npm", fmt.Sprintf("%x.new", sha256.Sum256([]byte(one.path))))
	}
	if err := whole.File(into, func(w io.Writer) error {
		sum := sha512.New()
		if _, err := io.Copy(io.MultiWriter(w, sum), &counted{response.Body, left}); err != nil {
			return p.plain(ctx, one, err)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); !signed {
			one.SHA512 = got
		} else if got != one.SHA512 {
			return refusal{Unfetched, one.path + ": its SHA-512 is not that of the lock file"}
		}
		return nil
	}); err != nil || signed {
		return err
	}
	p.sums.Store(one.path, one.SHA512)
	return os.Rename(into, p.archive(one))
}

// plain is an error without the registry's address, which may hold secrets.
func (p *packages) plain(ctx context.Context, one lockedPackage, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%s: %w", one.path, err)
}

func spend(left *atomic.Int64, n int64) error {
	if left.Add(-n) < 0 {
		return refusal{reason: HugePackages}
	}
	return nil
}

// counted reads until there is no room left.
type counted struct {
	io.Reader
	left *atomic.Int64
}

func (c *counted) Read(data []byte) (int, error) {
	n, err := c.Reader.Read(data)
	if huge := spend(c.left, int64(n)); huge != nil {
		return 0, huge
	}
	return n, err
}

// ask finds the user's registry, once: npm tells in an empty folder, where it is there, and else
// the variable that sets it or the public one.
func (p *packages) ask(ctx context.Context) error {
	if p.registry != nil {
		return nil
	}
	text := os.Getenv("npm_config_registry")
	if npm, err := exec.LookPath("npm"); err == nil && text == "" {
		empty, err := os.MkdirTemp("", "rondo-npm-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(empty)
		ctx, cancel := context.WithTimeout(ctx, npmTime)
		defer cancel()
		command := exec.CommandContext(ctx, npm, "config", "get", "registry")
		command.Dir, command.WaitDelay = empty, 5*time.Second
		command.Env = append(os.Environ(), "NPM_CONFIG_UPDATE_NOTIFIER=false")
		// or npm looks for one in the folders above
		if err := os.WriteFile(filepath.Join(empty, "package.json"), []byte("{}"), 0o600); err != nil {
			return err
		}
		out, err := command.Output()
		if err != nil {
			return fmt.Errorf("npm config get registry: %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	if text == "" {
		text = "https://" + publicRegistry + "/"
	}
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.Fragment != "" {
		return errors.New("npm's setting registry: want an https address")
	}
	p.registry = at
	return nil
}
