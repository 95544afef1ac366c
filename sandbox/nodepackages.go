package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// ErrPackages says that a set of npm's packages is damaged, too large, or asks for something that
// it may not hold. It is the set's doing, and not the machine's.
var ErrPackages = errors.New("these packages cannot be laid out")

// NodePackageList is the name of the list among the files of a set. Each other one is a package's
// archive as its registry has it: its SHA-512 in hexadecimal, and ".tgz".
const NodePackageList = "packages.json"

// NodePackage is a package of npm in a set.
type NodePackage struct {
	// Path is where it lies, as a lock file's keys say: node_modules/a,
	// node_modules/a/node_modules/@b/c.
	Path string `json:"path"`
	// SHA512 is the hexadecimal digest of its archive, which may be that of several packages.
	SHA512 string `json:"sha512"`
	// Programs are files of the package by the names under which they can be started.
	Programs map[string]string `json:"programs,omitempty"`
}

// Bounds of a set of packages.
const (
	maxNodePackages = 5000
	maxPrograms     = 200 // of one package
	maxPackagePath  = 1000
	maxPackageList  = 16 << 20 // bytes
	// MaxNodeBytes bounds the room of a set's archives, in bytes, and that of what is in them: with
	// a block for each file and each folder.
	MaxNodeBytes = 2 << 30
)

var (
	nodePackagePath = regexp.MustCompile(`^(?:(?:^|/)node_modules/(?:@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*)+$`)
	nodeProgram     = regexp.MustCompile(`^[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,200}$`)
	sha512Digest    = regexp.MustCompile(`^[0-9a-f]{128}$`)
)

// WriteNodePackages is the list of a set, as ReadNodePackages reads it.
func WriteNodePackages(packages []NodePackage) ([]byte, error) {
	data, err := json.Marshal(struct {
		Packages []NodePackage `json:"packages"`
	}{packages})
	if err == nil {
		_, err = readNodePackages(data)
	}
	return data, err
}

// ReadNodePackages reads and checks the list of a set among its files. Packages come in the order
// of their paths, so that each comes behind those that it lies in. Paths that differ in their
// letters' case alone are refused.
func ReadNodePackages(files fs.FS) ([]NodePackage, error) {
	file, err := files.Open(NodePackageList)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s", ErrPackages, NodePackageList)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxPackageList+1))
	if err == nil && len(data) > maxPackageList {
		err = fmt.Errorf("%w: %s: more than %d bytes", ErrPackages, NodePackageList, maxPackageList)
	}
	if err != nil {
		return nil, err
	}
	return readNodePackages(data)
}

func readNodePackages(data []byte) ([]NodePackage, error) {
	var list struct {
		Packages []NodePackage `json:"packages"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPackages, NodePackageList, err)
	}
	if len(list.Packages) > maxNodePackages {
		return nil, fmt.Errorf("%w: %d packages, the limit is %d", ErrPackages, len(list.Packages), maxNodePackages)
	}
	seen := map[string]bool{}
	for _, p := range list.Packages {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%w: %.200q: %w", ErrPackages, p.Path, err)
		}
		if folded := strings.ToLower(p.Path); seen[folded] {
			return nil, fmt.Errorf("%w: %.200q is there twice", ErrPackages, p.Path)
		} else {
			seen[folded] = true
		}
	}
	slices.SortFunc(list.Packages, func(a, b NodePackage) int { return strings.Compare(a.Path, b.Path) })
	return list.Packages, nil
}

func (p NodePackage) check() error {
	switch {
	case !ValidNodePath(p.Path):
		return errors.New("want a path such as node_modules/a")
	case !sha512Digest.MatchString(p.SHA512):
		return errors.New("want the SHA-512 of its archive")
	case len(p.Programs) > maxPrograms:
		return fmt.Errorf("more than %d programs", maxPrograms)
	}
	for name, file := range p.Programs {
		if !ValidNodeProgram(name, file) {
			return fmt.Errorf("%.100q is not a program's name, or %.200q no path of a file of the package", name, file)
		}
	}
	return nil
}

// ValidNodePath reports whether a path is one of a package's folder below node_modules.
func ValidNodePath(name string) bool {
	return len(name) <= maxPackagePath && nodePackagePath.MatchString(name) &&
		!strings.Contains(name+"/", "node_modules/node_modules/")
}

// ValidNodeProgram reports whether a program may have a name, and its file a path in its package.
func ValidNodeProgram(name, file string) bool {
	return nodeProgram.MatchString(name) && file != "." && file == path.Clean(file) && !path.IsAbs(file) &&
		file != ".." && !strings.HasPrefix(file, "../") && !strings.ContainsAny(file, "\\\x00")
}
