package terminalbench

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events/yamltext"
)

// service is the container of a task, as far as Harbor's folder says the same.
type service struct {
	image               string // of one that is not built
	context, dockerfile string
	additions           string // to the Dockerfile
	cpus                float64
	memory              int64 // MiB
}

// ours begins the variables that Terminal-Bench sets: names of its images and
// containers, and where its logs are.
const ours = "${T_BENCH_"

// ignoredKeys are what a service may have that changes nothing of what its task measures here.
var ignoredKeys = []string{"container_name", "expose", "ports", "tty", "stdin_open", "init", "restart", "labels"}

// readCompose reads docker-compose.yaml: one service, with nothing that a sandbox does not have.
func readCompose(source fs.FS) (*service, error) {
	text, err := readText(source, "docker-compose.yaml")
	if err != nil {
		return nil, err
	}
	var compose map[string]any
	if err := yamltext.Unmarshal([]byte(text), &compose); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(compose)) {
		if !slices.Contains([]string{"services", "version", "name"}, key) {
			return nil, fmt.Errorf("%.60s: a task has one sandbox, and nothing beside it", key)
		}
	}
	services, _ := compose["services"].(map[string]any)
	if len(services) != 1 {
		return nil, fmt.Errorf("services: %d of them, but a task has one sandbox", len(services))
	}
	name := slices.Collect(maps.Keys(services))[0]
	fields, _ := services[name].(map[string]any)
	made := &service{context: ".", dockerfile: "Dockerfile"}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if err := made.take(key, fields[key]); err != nil {
			return nil, fmt.Errorf("services.%.60s.%.60s: %w", name, key, err)
		}
	}
	if _, built := fields["build"]; !built && made.image == "" {
		return nil, fmt.Errorf("services.%.60s: has no build and no image", name)
	} else if built {
		made.image = ""
	}
	return made, nil
}

func (s *service) take(key string, value any) error {
	if slices.Contains(ignoredKeys, key) {
		return nil
	}
	switch key {
	case "build":
		return s.build(value)
	case "image":
		return s.named(value)
	case "environment":
		return s.environment(value)
	case "working_dir":
		return s.workdir(value)
	case "command":
		if !sleeps(value) {
			return errors.New("a sandbox starts no program of its own: start it in the Dockerfile's files, or in the instruction")
		}
	case "platform":
		if value != "linux/amd64" {
			return fmt.Errorf("%.60v: want linux/amd64", value)
		}
	case "deploy":
		return s.deploy(value)
	case "cpus":
		return s.limit("cpus", value)
	case "mem_limit":
		return s.limit("memory", value)
	case "volumes":
		if list, ok := value.([]any); !ok ||
			slices.ContainsFunc(list, func(v any) bool { return !strings.HasPrefix(fmt.Sprint(v), ours) }) {
			return errors.New("a sandbox has no volumes but Terminal-Bench's own logs: copy the files in the Dockerfile")
		}
	default:
		return errors.New("a sandbox does not have this")
	}
	return nil
}

// deploy takes the limits of a container. What it reserves is the business of the machine.
func (s *service) deploy(value any) error {
	fields, _ := value.(map[string]any)
	resources, _ := fields["resources"].(map[string]any)
	limits, _ := resources["limits"].(map[string]any)
	for key := range fields {
		if key != "resources" {
			return fmt.Errorf("%.60s: a sandbox does not have this", key)
		}
	}
	for key := range resources {
		if key != "limits" && key != "reservations" {
			return fmt.Errorf("resources.%.60s: a sandbox does not have this", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		if err := s.limit(key, limits[key]); err != nil {
			return fmt.Errorf("resources.limits.%.60s: %w", key, err)
		}
	}
	return nil
}

var validMemory = regexp.MustCompile(`^(\d{1,15}(?:\.\d{1,6})?)([kmg]?)i?b?$`)

func (s *service) limit(key string, value any) error {
	text := strings.ToLower(fmt.Sprint(value))
	switch key {
	case "cpus":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n > 0 && n <= 1024) {
			return fmt.Errorf("%.60q: want a number of processors", text)
		}
		s.cpus = n
	case "memory":
		m := validMemory.FindStringSubmatch(text)
		if m == nil {
			return fmt.Errorf("%.60q: want an amount of memory, such as 512m or 2G", text)
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return err
		}
		s.memory = int64(math.Ceil(n * map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20,
			"g": 1 << 30}[m[2]] / (1 << 20)))
	case "pids": // a sandbox has a limit of its own
	default:
		return errors.New("a sandbox does not have this limit")
	}
	return nil
}

var validImage = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,255}$`)

func (s *service) named(value any) error {
	name := fmt.Sprint(value)
	if strings.HasPrefix(name, ours) {
		return nil
	}
	if !validImage.MatchString(name) {
		return fmt.Errorf("%.100q: want the name of an image", name)
	}
	s.image = name
	return nil
}

func (s *service) build(value any) error {
	fields, ok := value.(map[string]any)
	if !ok {
		fields = map[string]any{"context": value}
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		text, ok := fields[key].(string)
		if ok {
			text = path.Clean(text)
		}
		switch {
		case !ok || key != "context" && key != "dockerfile":
			return fmt.Errorf("%.60s: only context and dockerfile are supported", key)
		case !fs.ValidPath(text):
			return fmt.Errorf("%s %.100q: must be in the task's folder", key, text)
		case key == "context":
			s.context = text
		default:
			s.dockerfile = text
		}
	}
	return nil
}

var (
	validVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	validWorkdir  = regexp.MustCompile(`^/[A-Za-z0-9._/-]*$`)
	quoting       = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$$", `\$`)
)

func (s *service) environment(value any) error {
	variables := map[string]string{}
	switch given := value.(type) {
	case map[string]any:
		for name, value := range given {
			if value == nil {
				return fmt.Errorf("%.60s: its value would be this machine's", name)
			}
			variables[name] = fmt.Sprint(value)
		}
	case []any:
		for _, one := range given {
			name, value, found := strings.Cut(fmt.Sprint(one), "=")
			if !found {
				return fmt.Errorf("%.60s: its value would be this machine's", name)
			}
			variables[name] = value
		}
	default:
		return errors.New("want variables and their values")
	}
	delete(variables, "TEST_DIR") // test.sh sets it
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value := variables[name]
		if !validVariable.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("%.60q: want a name, and a value of one line", name)
		}
		if strings.Contains(strings.ReplaceAll(value, "$$", ""), "$") {
			return fmt.Errorf("%s: refers to a variable of this machine", name)
		}
		s.additions += "ENV " + name + `="` + quoting.Replace(value) + "\"\n"
	}
	return nil
}

func (s *service) workdir(value any) error {
	dir := fmt.Sprint(value)
	if !validWorkdir.MatchString(dir) {
		return fmt.Errorf("%.100q: want an absolute path", dir)
	}
	s.additions += "WORKDIR " + dir + "\n"
	return nil
}

// sleeps reports whether a command does nothing but keep the container there.
func sleeps(value any) bool {
	words, ok := value.([]any)
	if !ok {
		words = []any{value}
	}
	said := strings.Join(strings.Fields(fmt.Sprintln(words...)), " ")
	return slices.Contains([]string{"sleep infinity", "tail -f /dev/null", "bash", "/bin/bash", "sh"},
		strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(said, "/bin/"), "sh -c "), "bash -c "))
}
