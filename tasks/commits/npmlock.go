package commits

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
)

// Reasons of a commit whose lock file is not taken. What it asks for is never fetched.
const (
	NoLock      = "no package-lock.json or npm-shrinkwrap.json"
	OldLock     = "lock file that is not of version 2 or 3"
	OddLock     = "lock file that is not as npm writes it"
	Workspaces  = "workspaces"
	OtherSource = "packages from elsewhere than the registry"
	NoSHA512    = "packages with another digest than SHA-512 in the lock file"
	WrongSystem = "packages for other systems"
)

// lockFiles in the order in which npm looks for them.
var lockFiles = []string{"npm-shrinkwrap.json", "package-lock.json"}

// publicRegistry is the host that lock files name, whichever registry a package came from.
const publicRegistry = "registry.npmjs.org"

// lockEntry is what a lock file says of a package.
type lockEntry struct {
	Name             string            `json:"name"` // where it is not that of its folder
	Version          string            `json:"version"`
	Resolved         string            `json:"resolved"`
	Integrity        string            `json:"integrity"`
	Link             bool              `json:"link"`
	InBundle         bool              `json:"inBundle"`
	Optional         bool              `json:"optional"`
	HasInstallScript bool              `json:"hasInstallScript"`
	OS               []string          `json:"os"`
	CPU              []string          `json:"cpu"`
	Libc             []string          `json:"libc"`
	Bin              map[string]string `json:"bin"`
}

// lockedPackage is one that is to be fetched: path is its address below the registry's.
type lockedPackage struct {
	sandbox.NodePackage
	path   string
	script bool // it has an install script, which does not run
}

// refusal is why a lock file is not taken: a reason, and more of it.
type refusal struct{ reason, because string }

func (r refusal) Error() string { return r.reason + ": " + r.because }

func refuse(reason, format string, args ...any) error {
	return refusal{reason, fmt.Sprintf(format, args...)}
}

// readLock reads what a lock file asks for on a system. An error is a refusal.
func readLock(data []byte, on system) (list []lockedPackage, err error) {
	if err := checkKeys(data); err != nil {
		return nil, refuse(OddLock, "%v", err)
	}
	var lock struct {
		Version  int                        `json:"lockfileVersion"`
		Packages map[string]json.RawMessage `json:"packages"`
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, refuse(OddLock, "%v", err)
	}
	if lock.Version != 2 && lock.Version != 3 {
		return nil, refuse(OldLock, "version %d", lock.Version)
	}
	left := map[string]bool{} // paths of packages for other systems
	seen := map[string]string{}
	for _, place := range slices.Sorted(maps.Keys(lock.Packages)) {
		if place == "" {
			continue
		}
		var entry lockEntry
		if err := json.Unmarshal(lock.Packages[place], &entry); err != nil {
			return nil, refuse(OddLock, "%.200q: %v", place, err)
		}
		if folded := strings.ToLower(place); seen[folded] != "" {
			return nil, refuse(OddLock, "%.200q differs from %.200q in its letters' case alone", place, seen[folded])
		} else {
			seen[folded] = place
		}
		one, taken, err := entry.take(place, on, left)
		if err != nil {
			return nil, err
		}
		if taken {
			list = append(list, one)
		}
	}
	return list, nil
}

// take checks an entry at a place. Left are the places of optional packages for other
// systems, with what lies in them.
func (e lockEntry) take(place string, on system, left map[string]bool) (one lockedPackage, taken bool, err error) {
	switch {
	case !strings.HasPrefix(place, "node_modules/"):
		return one, false, refuse(Workspaces, "%.200q", place)
	case !sandbox.ValidNodePath(place):
		return one, false, refuse(OddLock, "%.200q is not the place of a package", place)
	}
	for above := place; above != "."; above = path.Dir(above) {
		if left[above] {
			return one, false, nil
		}
	}
	if e.Link {
		return one, false, refuse(Workspaces, "%.200q", place)
	}
	if fits := matches(e.OS, on.os) && matches(e.CPU, on.cpu) &&
		(len(e.Libc) == 0 || matches(e.Libc, on.libc)); !fits && !e.Optional {
		return one, false, refuse(WrongSystem, "%.200q", place)
	} else if !fits {
		left[place] = true
		return one, false, nil
	}
	if e.InBundle {
		return one, false, nil // it comes with the package around it
	}
	if one.path, err = e.address(place); err != nil {
		return one, false, err
	}
	if one.SHA512, err = e.digest(place); err != nil {
		return one, false, err
	}
	one.Path, one.script = place, e.HasInstallScript
	for name, file := range e.Bin {
		if file = path.Clean(file); !sandbox.ValidNodeProgram(name, file) {
			return one, false, refuse(OddLock, "%.200q: the program %.100q is %.200q", place, name, file)
		}
		if one.Programs == nil {
			one.Programs = map[string]string{}
		}
		one.Programs[name] = file
	}
	return one, true, nil
}

var (
	packagePath = regexp.MustCompile(`^/(?:@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*/-/[A-Za-z0-9~_-][A-Za-z0-9._~+-]*\.tgz$`)
	plainDigits = regexp.MustCompile(`^[0-9][0-9A-Za-z.+-]*$`)
)

// address is where a package's archive lies below a registry's address: as it is resolved, or by
// its name and version where npm was told to leave that out.
func (e lockEntry) address(place string) (string, error) {
	if e.Resolved == "" {
		name := e.Name
		if name == "" {
			name = place[strings.LastIndex(place, "node_modules/")+len("node_modules/"):]
		}
		made := "/" + name + "/-/" + path.Base(name) + "-" + e.Version + ".tgz"
		if !plainDigits.MatchString(e.Version) || !packagePath.MatchString(made) {
			return "", refuse(OddLock, "%.200q: version %.100q", place, e.Version)
		}
		return made, nil
	}
	at, err := url.Parse(e.Resolved)
	if err != nil || at.Scheme != "https" || at.Host != publicRegistry || at.User != nil || at.RawQuery != "" ||
		at.ForceQuery || at.Fragment != "" || strings.ContainsAny(e.Resolved, "#%\\") {
		return "", refuse(OtherSource, "%.200q: %.200q", place, credentials.ReplaceAllString(e.Resolved, "//"))
	}
	if !packagePath.MatchString(at.Path) {
		return "", refuse(OddLock, "%.200q: %.200q is not the address of a package", place, e.Resolved)
	}
	return at.Path, nil
}

// digest is the SHA-512 of a package's archive, "" where npm has left it out: the
// registry's answer says it then.
func (e lockEntry) digest(place string) (string, error) {
	var found string
	for word := range strings.FieldsSeq(e.Integrity) {
		encoded, is := strings.CutPrefix(word, "sha512-")
		if !is {
			continue
		}
		sum, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || len(sum) != 64 || found != "" {
			return "", refuse(OddLock, "%.200q: integrity %.200q", place, e.Integrity)
		}
		found = hex.EncodeToString(sum)
	}
	if found == "" && e.Integrity != "" {
		return "", refuse(NoSHA512, "%.200q: %.100q", place, e.Integrity)
	}
	return found, nil
}

// system is the one that packages are for, as npm calls it.
type system struct{ os, cpu, libc string }

func thisSystem() system {
	on := system{"linux", map[string]string{"amd64": "x64"}[runtime.GOARCH], "glibc"}
	if on.cpu == "" {
		on.cpu = runtime.GOARCH
	}
	if musl, _ := filepath.Glob("/lib/ld-musl-*"); len(musl) > 0 {
		if _, err := os.Stat("/lib64/ld-linux-x86-64.so.2"); err != nil {
			on.libc = "musl"
		}
	}
	return on
}

// matches reports whether a list of names, or of such that it must not be with
// "!" before them, takes one.
func matches(list []string, name string) bool {
	negations, named := 0, len(list) == 1 && list[0] == "any"
	for _, one := range list {
		not, negated := strings.CutPrefix(one, "!")
		if negated && not == name {
			return false
		}
		if negated {
			negations++
		}
		named = named || one == name
	}
	return named || negations == len(list)
}

// maxNested bounds how deep a lock file's objects are in each other.
const maxNested = 64

// checkKeys refuses JSON in which an object has a key twice: what reads it next
// might take the other one.
func checkKeys(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var open []map[string]bool // nil for a list
	key := false               // a key comes next
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(open) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		text, isText := token.(string)
		if key && isText {
			folded := strings.ToLower(strings.ToUpper(text)) // as fields of structs are found
			if open[len(open)-1][folded] {
				return fmt.Errorf("%.200q is there twice", text)
			}
			open[len(open)-1][folded] = true
			key = false
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) > maxNested {
			return fmt.Errorf("more than %d objects in each other", maxNested)
		}
		key = len(open) > 0 && open[len(open)-1] != nil
	}
}
