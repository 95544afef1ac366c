package tasks

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/tasks/dockerfile"
)

// image is what the supported instructions of a Dockerfile amount to.
type image struct {
	base    string // what FROM names
	workdir string // "" before the first WORKDIR
	env     map[string]string
	args    map[string]string // ARG defaults
	folders []string          // absolute, made by RUN mkdir
	copies  []copying
}

// copying is one source of one COPY or ADD.
type copying struct {
	line        int
	source      string // relative to environment/, "." for all of it
	destination string // absolute
	into        bool   // the destination is a folder even for a file
}

// readImage interprets a Dockerfile. When prepared is true the pack names a
// ready snapshot, so only WORKDIR, ENV and ARG matter; otherwise it is an error
// where something is not what copying files alone can reproduce.
func readImage(text string, prepared bool) (*image, error) {
	list, err := dockerfile.Parse(text)
	if err != nil {
		return nil, err
	}
	img := &image{env: map[string]string{}, args: map[string]string{}}
	stages := 0
	for _, in := range list {
		if in.Name == "FROM" {
			stages++
			switch {
			case prepared:
			case stages > 1:
				err = errors.New("a second FROM: images of several stages have to be built: " + prepare)
			default:
				err = img.setBase(in)
			}
		} else {
			err = img.apply(in, prepared)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", in.Line, in.Name, err)
		}
	}
	return img, nil
}

const prepare = "`rondo tasks build` makes the image; or " +
	`prepare the tree beforehand and name it in task.toml: [metadata.rondo] snapshot = "environment/repo"`

func (img *image) apply(in dockerfile.Instruction, prepared bool) error {
	switch in.Name {
	case "WORKDIR":
		return img.setWorkdir(in)
	case "ENV":
		return img.setEnv(in)
	case "ARG":
		return img.setArgs(in)
	case "COPY", "ADD":
		if prepared {
			return nil
		}
		return img.addCopies(in)
	case "RUN":
		folders, ok := img.makesFolders(in.Args)
		if !ok && !prepared {
			return errors.New("this has to run: " + prepare)
		}
		img.folders = append(img.folders, folders...)
		return nil
	case "CMD", "ENTRYPOINT", "LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "USER", "VOLUME", "HEALTHCHECK", "SHELL":
		return nil // say nothing about the workspace
	}
	if prepared {
		return nil
	}
	return errors.New("not supported: " + prepare)
}

// imagePath is the PATH of an image that sets none, so that "ENV PATH=x:$PATH"
// can be read.
const imagePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (img *image) lookup(name string) (string, bool) {
	if value, found := img.env[name]; found {
		return value, true
	}
	if value, found := img.args[name]; found {
		return value, true
	}
	return imagePath, name == "PATH"
}

func (img *image) setWorkdir(in dockerfile.Instruction) error {
	list, err := dockerfile.Words(in.Args, img.lookup)
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return errors.New("want one folder")
	}
	img.workdir = img.absolute(list[0])
	return checkWorkdir(img.workdir)
}

// absolute resolves a path of the image against WORKDIR.
func (img *image) absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	base := img.workdir
	if base == "" {
		base = "/"
	}
	return path.Join(base, name)
}

func (img *image) setEnv(in dockerfile.Instruction) error {
	list, err := dockerfile.Words(in.Args, img.lookup)
	if err != nil {
		return err
	}
	if len(list) > 1 && !strings.Contains(list[0], "=") { // the old form: ENV NAME value ...
		list = []string{list[0] + "=" + strings.Join(list[1:], " ")}
	}
	for _, pair := range list {
		name, value, found := strings.Cut(pair, "=")
		if !found || !dockerfile.ValidVariable.MatchString(name) {
			return fmt.Errorf("%q: want NAME=value", pair)
		}
		if len(value) > maxEnvValue || len(img.env) >= maxEnv {
			return fmt.Errorf("%s: more than %d bytes, or more than %d variables", name, maxEnvValue, maxEnv)
		}
		img.env[name] = value
	}
	return nil
}

func (img *image) setArgs(in dockerfile.Instruction) error {
	list, err := dockerfile.Words(in.Args, img.lookup)
	if err != nil {
		return err
	}
	for _, pair := range list {
		if name, value, found := strings.Cut(pair, "="); found && len(value) <= maxEnvValue {
			img.args[name] = value
		}
	}
	return nil
}

func (img *image) addCopies(in dockerfile.Instruction) error {
	list, err := dockerfile.Words(in.Args, img.lookup)
	if err != nil {
		return err
	}
	for len(list) > 0 && strings.HasPrefix(list[0], "--") {
		option, _, _ := strings.Cut(list[0], "=")
		if !slices.Contains([]string{"--chown", "--chmod", "--link"}, option) {
			return fmt.Errorf("option %s is not supported: %s", option, prepare)
		}
		list = list[1:]
	}
	if len(list) < 2 {
		return errors.New("want sources and a destination")
	}
	sources, destination := list[:len(list)-1], list[len(list)-1]
	into := len(sources) > 1 || strings.HasSuffix(destination, "/") || path.Base(destination) == "."
	for _, source := range sources {
		if err := checkSource(in.Name, source); err != nil {
			return err
		}
		img.copies = append(img.copies, copying{in.Line, path.Clean(strings.TrimLeft(source, "/")),
			img.absolute(destination), into})
	}
	return nil
}

func checkSource(op, source string) error {
	clean := path.Clean(strings.TrimLeft(source, "/"))
	switch {
	case source == "" || clean == ".." || strings.HasPrefix(clean, "../"):
		return fmt.Errorf("source %q is outside of environment/", source)
	case strings.ContainsAny(source, "*?["):
		return fmt.Errorf("source %q: patterns are not supported: name the folder", source)
	case op == "ADD" && (strings.Contains(source, "://") || strings.HasPrefix(source, "git@")):
		return fmt.Errorf("source %q: nothing is downloaded: put it into environment/", source)
	case op == "ADD" && isArchive(source):
		return fmt.Errorf("source %q: archives are not unpacked: put the unpacked tree into environment/", source)
	}
	return nil
}

func isArchive(name string) bool {
	for _, ending := range []string{".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst"} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return false
}

// makesFolders reads a RUN that only makes folders, or does nothing; ok is
// false for any other.
func (img *image) makesFolders(command string) (folders []string, ok bool) {
	for part := range strings.SplitSeq(strings.ReplaceAll(command, "&&", ";"), ";") {
		fields := strings.Fields(part)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "true", ":":
		case "mkdir":
			for _, field := range fields[1:] {
				if field == "-p" {
					continue
				}
				if field[0] == '-' || strings.ContainsFunc(field, isOdd) {
					return nil, false
				}
				folders = append(folders, img.absolute(field))
			}
		default:
			return nil, false
		}
	}
	return folders, true
}
