package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// goCache is where the build cache is inside.
const goCache = "/var/cache/go-build"

// goEnv makes builds inside offline, and their cache keys those of the warmed cache.
var goEnv = map[string]string{
	"GOFLAGS": "-buildvcs=false", "GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local",
	"GOENV": "off", "GOWORK": "off",
	"CGO_ENABLED": "0", "GOPATH": "/root/go", "GOCACHE": goCache,
}

// goPackages is what small programs and their tests import.
var goPackages = strings.Fields(`archive/tar archive/zip bufio bytes cmp compress/gzip container/heap container/list container/ring context
	crypto/md5 crypto/rand crypto/sha1 crypto/sha256 embed encoding/base64 encoding/binary encoding/csv encoding/hex encoding/json encoding/xml
	errors expvar flag fmt go/ast go/parser go/token hash/crc32 hash/fnv html/template io io/fs io/ioutil iter log log/slog maps math math/big
	math/bits math/rand math/rand/v2 net net/http net/http/httptest net/url os os/exec os/signal path path/filepath reflect regexp runtime
	runtime/debug slices sort strconv strings sync sync/atomic syscall testing testing/fstest testing/iotest testing/quick
	testing/synctest text/tabwriter text/template time unicode unicode/utf16 unicode/utf8 unique`)

// warmTime bounds the first build of the standard packages.
const warmTime = 15 * time.Minute

// Toolchain answers the mounts and the environment that put a tool chain of the host into a
// sandbox, at the same path. "go" is the one that the go command on the PATH stands for, with a
// build cache of the standard packages: built once into cacheDir, which takes half a minute, and
// shared from then on, each sandbox with its own changes. "python" and "node" are those that
// python3 and node on the PATH stand for.
func Toolchain(ctx context.Context, name, cacheDir string) (mounts []Mount, env map[string]string, err error) {
	if err := HasToolchain(ctx, name); err != nil {
		return nil, nil, err
	}
	if i, ok := interpreters[name]; ok {
		prefix, err := i.prefix(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("tool chain %s: %w", name, err)
		}
		mounts, env = i.mounts(prefix)
		return mounts, env, nil
	}
	mounts, env, err = goToolchain(ctx, cacheDir)
	if err != nil {
		return nil, nil, fmt.Errorf("tool chain go: %w", err)
	}
	return mounts, env, nil
}

// HasToolchain says why the host does not have a tool chain; nil when it has it. It builds nothing.
func HasToolchain(ctx context.Context, name string) error {
	if i, ok := interpreters[name]; ok {
		if _, err := i.prefix(ctx); err != nil {
			return fmt.Errorf("tool chain %s: %w", name, err)
		}
		return nil
	}
	if name != "go" {
		return fmt.Errorf("tool chain %q: only go, python and node are known", name)
	}
	if _, err := goRoot(ctx); err != nil {
		return fmt.Errorf("tool chain go: %w", err)
	}
	return nil
}

func goToolchain(ctx context.Context, cacheDir string) ([]Mount, map[string]string, error) {
	root, err := goRoot(ctx)
	if err != nil {
		return nil, nil, err
	}
	cacheDir, err = filepath.Abs(cacheDir)
	if err != nil {
		return nil, nil, err
	}
	folder, err := goCacheFolder(root, cacheDir)
	if err != nil {
		return nil, nil, err
	}
	if err := warmOnce(ctx, root, folder); err != nil {
		return nil, nil, err
	}
	env := map[string]string{"PATH": root + "/bin:" + baseEnv["PATH"], "GOROOT": root}
	for key, value := range goEnv {
		env[key] = value
	}
	return []Mount{{Source: root, Target: root}, {Source: filepath.Join(folder, "build"), Target: goCache,
		Overlay: true}}, env, nil
}

// goRoot is where the files of the go command are: asked once, as every sandbox needs it.
func goRoot(ctx context.Context) (string, error) {
	knownGoRoot.Lock()
	defer knownGoRoot.Unlock()
	if knownGoRoot.path != "" {
		return knownGoRoot.path, nil
	}
	root, err := askGoRoot(ctx)
	if err == nil {
		knownGoRoot.path = root
	}
	return root, err
}

var knownGoRoot struct {
	sync.Mutex
	path string
}

// askGoRoot asks the go command itself, which may be a wrapper or a link.
func askGoRoot(ctx context.Context) (string, error) {
	program, err := exec.LookPath("go")
	if err != nil {
		return "", errors.New("there is no go command on the PATH")
	}
	command := exec.CommandContext(ctx, program, "env", "GOROOT")
	command.Dir = "/" // no go.mod that asks for another version
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GOWORK=off")
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s env GOROOT: %w", program, err)
	}
	root, err := filepath.EvalSymlinks(strings.TrimSpace(string(out)))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(root, "bin", "go")); err != nil {
		return "", err
	}
	return root, nil
}

// goCacheFolder names the cache of one version of Go, at one place, for one user of the host.
func goCacheFolder(root, cacheDir string) (string, error) {
	version, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%v\n%v\n%d", version, root, goEnv, goPackages, os.Geteuid()))
	first, _, _ := strings.Cut(string(version), "\n")
	folder := filepath.Join(cacheDir, fmt.Sprintf("%s-%x", strings.TrimSpace(first), key[:8]))
	return folder, os.MkdirAll(folder, 0o755)
}

// warmOnce fills the cache under a lock between processes; the file "ready-2" says that it is
// whole. One that has "ready" alone is another version's, and is there but for its modes.
func warmOnce(ctx context.Context, root, folder string) error {
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(ctx, lock, unix.LOCK_EX); err != nil {
		return fmt.Errorf("wait for another process that fills the build cache: %w", err)
	}
	ready := filepath.Join(folder, "ready-2")
	if _, err := os.Stat(ready); err == nil {
		return nil
	}
	if err := warm(ctx, root, folder); err != nil {
		return fmt.Errorf("fill the build cache: %w", err)
	}
	return os.WriteFile(ready, nil, 0o644)
}

// flock waits for a lock, unix.LOCK_EX or LOCK_SH. One that was held in the other
// way is lost while it waits.
func flock(ctx context.Context, file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// warm builds and tests a program that imports every package of the list.
func warm(ctx context.Context, root, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	work, err := os.MkdirTemp(folder, "warm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var imports strings.Builder
	for _, name := range goPackages {
		fmt.Fprintf(&imports, "import _ %q\n", name)
	}
	files := map[string]string{
		"go.mod":       "module warm\n",
		"main.go":      "package main\n" + imports.String() + "func main() {}\n",
		"main_test.go": "package main\nimport \"testing\"\nfunc TestMain(m *testing.M) { m.Run() }\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	build := filepath.Join(folder, "build")
	for _, arguments := range [][]string{{"build", "-o", "warm.exe", "."}, {"vet", "."}, {"test", "."}} {
		if err := goCommand(ctx, root, work, build, arguments); err != nil {
			return err
		}
	}
	return preserve(build)
}

func goCommand(ctx context.Context, root, work, build string, arguments []string) error {
	command := exec.CommandContext(ctx, filepath.Join(root, "bin", "go"), arguments...)
	command.Dir = work
	command.Env = []string{"PATH=" + root + "/bin:" + baseEnv["PATH"], "HOME=" + work, "GOROOT=" + root}
	for key, value := range goEnv {
		switch key {
		case "GOCACHE":
			value = build
		case "GOPATH":
			value = work
		}
		command.Env = append(command.Env, key+"="+value)
	}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %.2000s", arguments[0], err, out)
	}
	return nil
}

// preserve makes the cache fit to be shared. The go command deletes what it has not used for days,
// and notes uses in the files' times: times far ahead keep every sandbox from doing either. What
// the sandbox's user does not own, an overlay cannot change, so where the owner is root the files
// become the mapped user's, and its group may write them: verifiers are another one of it.
func preserve(build string) error {
	ahead := time.Now().AddDate(20, 0, 0)
	return filepath.WalkDir(build, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			if err := lend(name); err != nil {
				return err
			}
		}
		return os.Chtimes(name, ahead, ahead)
	})
}

// lend gives a file to sandboxes of all roles.
func lend(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	return errors.Join(os.Lchown(name, hostUser, hostUser),
		os.Chmod(name, info.Mode().Perm()|info.Mode().Perm()&0o200>>3))
}
