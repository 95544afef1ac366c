package compose_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// standIn is an image of ours under the name of a public one.
type standIn struct {
	name       string // %s is the version
	file       string // the shipped file that names it
	version    string // how it does
	dockerfile string
	files      func(t *testing.T, context, cache string) // what the Dockerfile copies
}

// standIns are what the shipped files pull, an image after those that it is made from. Each was
// compared with the published Dockerfile, in what the shipped files rely on:
//
//   - debian:bookworm-slim is debootstrap's minimal system without documentation, as debuerreotype
//     makes it; it has no certificates, no wget and no init.
//   - busybox:*-musl is one static binary under the names of its applets in /bin, /etc/passwd, an
//     open /tmp, and CMD sh. Debian's build of it has fewer applets (no adduser), so the
//     Dockerfile uses none of those.
//   - golang:*-bookworm is Debian with certificates, Go in /usr/local/go, GOPATH /go,
//     GOTOOLCHAIN=local and the work directory /go. This machine's certificates stand in for
//     Debian's, and there is no C compiler, as the build uses none.
//   - nats:*-alpine (nats-io/nats-docker) runs as root, has no volume, and its entry point puts
//     nats-server before arguments that begin with a dash. Alpine's shell and wget are busybox.
//   - prom/prometheus runs as nobody, who owns /prometheus, and has busybox's wget. Its program is
//     Debian's here, which is older (2.42).
//   - versity/versitygw runs as root, and its entry point, which is taken from the module itself,
//     makes the command line of VGW_*.
var standIns = []standIn{
	{"debian:%s-slim", "Dockerfile", `ARG DEBIAN=(\S+)`, `FROM scratch
ADD bookworm.tar.gz /
CMD ["bash"]
`, debianFiles},
	{"busybox:%s-musl", "Dockerfile", `ARG BUSYBOX=(\S+)`, `FROM scratch
ADD root.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["sh"]
`, busyboxFiles},
	{"golang:%s-" + debian, "Dockerfile", `ARG GO_VERSION=(\S+)`, `FROM debian
COPY ca-certificates.crt /etc/ssl/certs/
COPY go /usr/local/go
ENV GOPATH=/go GOTOOLCHAIN=local PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /go
`, goFiles},
	{"nats:%s-alpine", "compose.yaml", `image: nats:(\S+)-alpine`, `FROM busybox
COPY nats-server docker-entrypoint.sh /usr/local/bin/
EXPOSE 4222 8222 6222
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["nats-server", "--config", "/etc/nats/nats-server.conf"]
`, natsFiles},
	{"versity/versitygw:%s", "compose.yaml", `image: versity/versitygw:(\S+)`, `FROM busybox
COPY versitygw docker-entrypoint.sh /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/docker-entrypoint.sh"]
`, versitygwFiles},
	{"prom/prometheus:%s", "compose.yaml", `image: prom/prometheus:(\S+)`, `FROM debian
COPY prometheus wget /bin/
COPY --chown=65534:65534 data /prometheus
USER 65534
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
`, prometheusFiles},
}

// debian is the release of the base system, which the shipped Dockerfile must name too.
const debian = "bookworm"

// ours marks stand-ins, so that a real image is never taken for one and removed.
const ours = "rondo.stand-in"

// standInImages makes the public images that this engine does not have, and removes them
// after the test. Where a machine reaches a registry, `docker pull` before the test puts
// the real ones to the test.
func standInImages(t *testing.T, cache string) {
	t.Helper()
	made := map[string]string{} // full names by the part before the colon
	for _, s := range standIns {
		name := fmt.Sprintf(s.name, find(t, filepath.Join(root, s.file), s.version))
		kind, _, _ := strings.Cut(name, ":")
		made[kind] = name
		mark, err := output(docker("image", "inspect", "--format", `{{index .Config.Labels "`+ours+`"}}`, name))
		if err == nil && mark == "" {
			t.Logf("%s is the real one", name)
			continue
		}
		context := t.TempDir()
		s.files(t, context, cache)
		dockerfile := strings.NewReplacer("FROM debian\n", "FROM "+made["debian"]+"\n", "FROM busybox\n",
			"FROM "+made["busybox"]+"\n").Replace(s.dockerfile)
		write(t, filepath.Join(context, "Dockerfile"), dockerfile+"LABEL "+ours+"=yes\n", 0o644)
		build := docker("build", "--quiet", "--tag", name, context)
		// every engine has the old builder, and needs no plugin for it
		build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
		must(t, build)
		t.Cleanup(func() { exec.Command("docker", "image", "rm", name).Run() })
	}
}

// find is what a pattern's group matches in a file.
func find(t *testing.T, file, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has nothing like %s", file, pattern)
	}
	return string(m[1])
}

func debianFiles(t *testing.T, context, cache string) {
	archive := filepath.Join(cache, debian+".tar.gz")
	if _, err := os.Stat(archive); err != nil {
		dir := t.TempDir()
		must(t, exec.Command("debootstrap", "--variant=minbase", debian, dir, "http://deb.debian.org/debian"))
		part := archive + ".part"
		must(t, exec.Command("tar", "--create", "--gzip", "--file", part, "--directory", dir,
			"--exclude=./var/lib/apt/lists/*",
			"--exclude=./var/cache/apt/*", "--exclude=./usr/share/doc/*", "--exclude=./usr/share/man/*",
			"--exclude=./usr/share/locale/*",
			"--exclude=./dev/*", "--exclude=./debootstrap", "."))
		if err := os.Rename(part, archive); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, archive, context, 0o644)
}

func busyboxFiles(t *testing.T, context, _ string) {
	dir := t.TempDir()
	for _, d := range []string{"bin", "etc", "root", "home", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "/bin/busybox", filepath.Join(dir, "bin"), 0o755)
	for applet := range strings.FieldsSeq(must(t, exec.Command("/bin/busybox", "--list"))) {
		if applet == "busybox" {
			continue
		}
		if err := os.Link(filepath.Join(dir, "bin", "busybox"), filepath.Join(dir, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "etc", "passwd"),
		"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n", 0o644)
	write(t, filepath.Join(dir, "etc", "group"), "root:x:0:\nnobody:x:65534:\n", 0o644)
	must(t, exec.Command("tar", "--create", "--owner=0", "--group=0", "--file", filepath.Join(context, "root.tar"),
		"--directory", dir, "."))
}

func goFiles(t *testing.T, context, _ string) {
	goroot := must(t, exec.Command("go", "env", "GOROOT"))
	target := filepath.Join(context, "go")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"VERSION", "go.env", "bin", "lib", "pkg", "src"} {
		must(t, exec.Command("cp", "--recursive", "--preserve=mode,timestamps",
			"--dereference", filepath.Join(goroot, part), target))
	}
	certificates := os.Getenv("SSL_CERT_FILE")
	if certificates == "" {
		certificates = "/etc/ssl/certs/ca-certificates.crt"
	}
	text, err := os.ReadFile(certificates)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(context, "ca-certificates.crt"), string(text), 0o644)
}

func natsFiles(t *testing.T, context, _ string) {
	toolBinary(t, context, "nats-server", "github.com/nats-io/nats-server/v2")
	write(t, filepath.Join(context, "docker-entrypoint.sh"), `#!/bin/sh
case "${1:--}" in
-*) exec nats-server "$@" ;;
*) exec "$@" ;;
esac
`, 0o755)
}

func versitygwFiles(t *testing.T, context, _ string) {
	toolBinary(t, context, "versitygw", "github.com/versity/versitygw/cmd/versitygw")
	module := must(t, exec.Command("go", "list", "-C", tools, "-m", "-f", "{{.Dir}}", "github.com/versity/versitygw"))
	copyFile(t, filepath.Join(module, "docker-entrypoint.sh"), context, 0o755)
}

func prometheusFiles(t *testing.T, context, _ string) {
	copyFile(t, "/usr/bin/prometheus", context, 0o755)
	copyFile(t, "/bin/busybox", context, 0o755)
	if err := os.Rename(filepath.Join(context, "busybox"), filepath.Join(context, "wget")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(context, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, file, dir string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, filepath.Base(file)), string(data), mode)
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	err := os.WriteFile(file, []byte(text), mode)
	if err == nil {
		err = os.Chmod(file, mode) // whatever the umask
	}
	if err != nil {
		t.Fatal(err)
	}
}
