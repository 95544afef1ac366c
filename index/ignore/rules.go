// Package ignore reads ignore files as Git does, and says which entries of a tree they exclude.
//
// Rules are in .gitignore of every folder and in .git/info/exclude of the repository. Over them
// stand .rondoignore and .cursorignore, which have the same form and may also bring back (!name)
// what Git ignores. Nothing below an excluded folder is looked at, so nothing there can be brought
// back. What Git alone has in its configuration (core.excludesFile) does not count: an index must
// not depend on whose machine made it.
package ignore

import "fmt"

// Names of the ignore files of a folder. The last one that has a matching line decides.
const (
	GitFile    = ".gitignore"
	CursorFile = ".cursorignore"
	RondoFile  = ".rondoignore"
)

// planeFolder is where a plane lies unless it is told otherwise. It holds the index, so no index
// could ever be up to date that holds it.
const planeFolder = ".rondo"

// IsFile reports whether a name is that of an ignore file.
func IsFile(name string) bool { return name == GitFile || name == CursorFile || name == RondoFile }

// Folder holds the rules for the entries of one folder: its own, and those of the folders
// above. It never changes.
type Folder struct {
	parent *Folder
	path   string // from the root that the rules began at, with a slash at the end; empty at the root
	git    []pattern
	own    []pattern
	total  int // patterns here and above
}

// maxTotal bounds the patterns that can apply to one entry.
const maxTotal = 2 * maxPatterns

// Root makes the rules of a tree's root from the texts of its ignore files, by name,
// and of .git/info/exclude.
func Root(files map[string]string, exclude string) (*Folder, error) {
	repository := &Folder{}
	var err error
	if repository.git, err = parse(exclude); err != nil {
		return nil, fmt.Errorf(".git/info/exclude: %w", err)
	}
	repository.total = len(repository.git)
	return repository.addFiles("", files)
}

// Own adds the ignore files of the very folder that these rules are for, by name, to those that
// reach into it from above.
func (f *Folder) Own(files map[string]string) (*Folder, error) { return f.addFiles(f.path, files) }

// Child makes the rules of a folder in this one, from the texts of that folder's ignore files by
// name. Without any, it costs next to nothing.
func (f *Folder) Child(name string, files map[string]string) (*Folder, error) {
	return f.addFiles(f.path+name+"/", files)
}

func (f *Folder) addFiles(path string, files map[string]string) (*Folder, error) {
	child := &Folder{parent: f, path: path, total: f.total}
	if f.git == nil && f.own == nil {
		child.parent = f.parent // the chain is as short as there are ignore files
	}
	for _, name := range []string{GitFile, CursorFile, RondoFile} {
		text, ok := files[name]
		if !ok {
			continue
		}
		patterns, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", path, name, err)
		}
		if child.total += len(patterns); child.total > maxTotal {
			return nil, fmt.Errorf("%s%s: more than %d patterns, including those of the folders above", path, name,
				maxTotal)
		}
		if name == GitFile {
			child.git = patterns
		} else {
			child.own = append(child.own, patterns...)
		}
	}
	return child, nil
}

// Ignored reports whether the rules exclude an entry of this folder. The folder
// itself must not be excluded.
func (f *Folder) Ignored(name string, folder bool) bool {
	if name == ".git" || name == planeFolder && folder {
		return true
	}
	if f.total == 0 {
		return false
	}
	path := f.path + name
	if ignored, found := f.decide(path, name, folder, (*Folder).ownRules); found {
		return ignored
	}
	ignored, _ := f.decide(path, name, folder, (*Folder).gitRules)
	return ignored
}

func (f *Folder) ownRules() []pattern { return f.own }
func (f *Folder) gitRules() []pattern { return f.git }

// decide finds the last matching line of the nearest folder that has one.
func (f *Folder) decide(path, name string, folder bool, rules func(*Folder) []pattern) (ignored, found bool) {
	for ; f != nil; f = f.parent {
		patterns := rules(f)
		for i := len(patterns) - 1; i >= 0; i-- {
			if patterns[i].match(path[len(f.path):], name, folder) {
				return !patterns[i].negated, true
			}
		}
	}
	return false, false
}
