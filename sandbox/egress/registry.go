package egress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/storage"
)

// files is the folder of a registry at the proxy below which the files of each of its bases are, by
// number. No package can have that name.
const files = "_files"

// keptAnswer is an answer of a registry as a run keeps it. It never changes.
type keptAnswer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Size        int64  `json:"size"`
	SHA256      string `json:"sha256"`
}

// maxKept bounds the description of an answer.
const maxKept = 4 << 10

// registry answers for a package registry, /NAME/PATH.
func (p *Proxy) registry(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	bases := p.gateway.registries[name]
	var why string
	switch {
	case bases == nil:
		why = fmt.Sprintf("there is no registry %q here, only %v", shorten(name, 64), netaccess.Registries)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		why = "from registries packages are fetched, with GET and HEAD, and nothing else"
	case r.URL.RawQuery != "":
		why = "registries are not asked with a query"
	default:
		why = p.gateway.refusesRegistry(p.session, name)
	}
	if why != "" {
		p.refuse(w, r, why)
		return
	}
	upstream, err := located(name, bases, path)
	if err != nil {
		p.refuse(w, r, err.Error())
		return
	}
	want := registryRequest{run: p.session.Run, registry: name, path: path, upstream: upstream,
		accept: accepted(name, r.Header.Get("Accept")), address: p.address}
	found, had, err := p.obtain(r.Context(), want)
	var answered *statusError
	switch {
	case errors.Is(err, errNotKept):
		p.refuse(w, r, p.missed(fmt.Sprintf("%s: %v", recordedURL(r), err)))
	case errors.As(err, &answered):
		p.fail(w, r, http.StatusBadGateway, err.Error(), "")
	case errors.Is(err, storage.ErrTooLarge), errors.Is(err, errElsewhere), errors.Is(err, errSpent):
		p.refuse(w, r, err.Error())
	case err != nil:
		p.fail(w, r, http.StatusBadGateway, "the registry "+name+" cannot be reached", "")
	default:
		p.answer(w, r, want, found, had)
	}
}

// answer sends what is kept.
func (p *Proxy) answer(w http.ResponseWriter, r *http.Request, want registryRequest, found keptAnswer, had bool) {
	w.Header().Set("Content-Type", found.ContentType)
	w.Header().Set("Content-Length", strconv.FormatInt(found.Size, 10))
	w.WriteHeader(found.Status)
	fetch := netaccess.Fetch{Method: r.Method, URL: recordedURL(r), Status: found.Status,
		SHA256: found.SHA256, Kept: had}
	if r.Method == http.MethodHead || found.Size == 0 {
		p.note(fetch)
		return
	}
	body := &keptBody{ctx: r.Context(), store: p.gateway.store, key: want.object(found.SHA256),
		size: found.Size, want: found.SHA256}
	n, err := p.send(w, body)
	fetch.Bytes = n
	if errors.Is(err, errSpent) {
		fetch.Refused = err.Error()
	}
	p.note(fetch)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// located is the URL of a path below a registry's base.
func located(name string, bases []*url.URL, path string) (*url.URL, error) {
	base := bases[0]
	if name == "pypi" {
		path = strings.TrimPrefix(path, "simple/")
	}
	if rest, ok := strings.CutPrefix(path, files+"/"); ok {
		number, below, _ := strings.Cut(rest, "/")
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n >= len(bases) {
			return nil, errors.New("the registry has no such files")
		}
		base, path = bases[n], below
	}
	for segment := range strings.SplitSeq(path, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." || strings.Contains(plain, "/..") ||
			strings.Contains(plain, "../") || strings.ContainsAny(plain, "\x00\\\r\n?#") {
			return nil, errors.New("the path leads out of the registry")
		}
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, errors.New("the path cannot be read")
	}
	found := *base
	found.Path, found.RawPath = base.Path+plain, base.EscapedPath()+path
	return &found, nil
}

// accepted is the form in which a page is asked for, of the few that there are.
func accepted(registry, accept string) string {
	const simple, install = "application/vnd.pypi.simple.v1+json", "application/vnd.npm.install-v1+json"
	switch {
	case registry == "pypi" && strings.Contains(accept, simple):
		return simple + ", text/html; q=0.1"
	case registry == "npm" && strings.Contains(accept, install):
		return install + ", application/json; q=0.8"
	case registry == "pypi":
		return "text/html, */*; q=0.1"
	}
	return "*/*"
}

// registryRequest is what a sandbox asked a registry for.
type registryRequest struct {
	run, registry, path, accept string
	upstream                    *url.URL
	address                     string
}

// key names the answer's description. It follows from what the sandbox asked, so that a replay
// finds it wherever the mirrors were.
func (w registryRequest) key() string {
	sum := sha256.Sum256([]byte(w.registry + "\x00" + w.path + "\x00" + w.accept))
	return "runs/" + w.run + "/tools/fetched/" + hex.EncodeToString(sum[:])
}

// object names the answer itself.
func (w registryRequest) object(digest string) string {
	return "runs/" + w.run + "/tools/fetched/sha256/" + digest
}

// errNotKept says that a replay asks for something new.
var errNotKept = errors.New("the run has not kept it, and a replay fetches nothing")

// obtain finds what the run has kept, or fetches and keeps it. Of those who want the
// same at once one fetches.
func (p *Proxy) obtain(ctx context.Context, want registryRequest) (found keptAnswer, had bool, err error) {
	g := p.gateway
	if found, err = g.load(ctx, want); err == nil || !errors.Is(err, storage.ErrNotFound) {
		return found, true, err
	}
	if p.session.Replay {
		return keptAnswer{}, false, errNotKept
	}
	for {
		loaded := g.loading.DoChan(want.key(), func() (any, error) { return p.fetch(ctx, want) })
		select {
		case <-ctx.Done():
			return keptAnswer{}, false, ctx.Err()
		case result := <-loaded:
			if result.Err == nil {
				return result.Val.(keptAnswer), false, nil
			}
			if !errors.Is(result.Err, errLeft) || ctx.Err() != nil {
				return keptAnswer{}, false, result.Err
			}
		}
	}
}

// errLeft says that who asked first left before it was its turn.
var errLeft = errors.New("left")

// fetch waits for its turn and fetches. Once begun it goes on without the one who asked, and counts
// all the same: who asks again finds what was kept.
func (p *Proxy) fetch(ctx context.Context, want registryRequest) (keptAnswer, error) {
	select {
	case p.gateway.slots <- struct{}{}:
		defer func() { <-p.gateway.slots }()
	case <-ctx.Done():
		return keptAnswer{}, errLeft
	}
	if ctx.Err() != nil {
		return keptAnswer{}, errLeft
	}
	if p.fetched.Load() >= p.session.Network.Limit() {
		return keptAnswer{}, errSpent
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	found, err := p.gateway.fetch(ctx, want)
	p.fetched.Add(found.Size)
	return found, err
}

func (g *Gateway) load(ctx context.Context, want registryRequest) (found keptAnswer, err error) {
	info, err := g.store.Stat(ctx, want.key())
	if err != nil {
		return keptAnswer{}, err
	}
	if info.Size > maxKept {
		return keptAnswer{}, fmt.Errorf("%s: %w", want.key(), storage.ErrTooLarge)
	}
	data, err := g.store.Get(ctx, want.key())
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	return found, err
}

// statusError is an answer that says nothing about a package.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("the registry answered %d", e.status) }

// lasting are the statuses that are kept: the package is there, or is not.
var lasting = []int{http.StatusOK, http.StatusNotFound, http.StatusGone}

// fetch asks the registry and keeps what it answers, unless another runner was first:
// then that is the answer.
func (g *Gateway) fetch(ctx context.Context, want registryRequest) (keptAnswer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, want.upstream.String(), nil)
	if err != nil {
		return keptAnswer{}, err
	}
	request.Header.Set("Accept", want.accept)
	request.Header.Set("User-Agent", "rondo")
	response, err := g.mirrors.Do(request)
	if err != nil {
		return keptAnswer{}, err
	}
	defer response.Body.Close()
	if !slices.Contains(lasting, response.StatusCode) {
		return keptAnswer{}, &statusError{response.StatusCode}
	}
	found := keptAnswer{Status: response.StatusCode, ContentType: shorten(response.Header.Get("Content-Type"), 200)}
	rewrite := rewriterOf(want.registry, found.ContentType)
	if rewrite == nil || found.Status != http.StatusOK {
		return g.keepFile(ctx, want, found, response.Body)
	}
	page, err := io.ReadAll(bounded(response.Body, maxIndex))
	if err != nil {
		return keptAnswer{}, err
	}
	page, err = rewrite(page, links{g.registries[want.registry], response.Request.URL,
		"http://" + want.address + "/" + want.registry})
	if err != nil {
		return keptAnswer{}, fmt.Errorf("read a page of the registry %s: %w", want.registry, err)
	}
	return g.keepFile(ctx, want, found, bytes.NewReader(page))
}

// bounded fails where there is more to read than a limit.
func bounded(from io.Reader, limit int64) io.Reader {
	return io.MultiReader(io.LimitReader(from, limit), &tooMuch{from, limit})
}

// tooMuch is the end of what is bounded: it must be empty.
type tooMuch struct {
	from  io.Reader
	limit int64
}

func (m *tooMuch) Read([]byte) (int, error) {
	n, err := io.ReadFull(m.from, make([]byte, 1))
	if n > 0 {
		return 0, fmt.Errorf("the registry's answer has more than %d MiB: %w", m.limit>>20, storage.ErrTooLarge)
	}
	return 0, err
}

// keepFile stores what was fetched, by its digest, which is known when all of it is on the disk.
func (g *Gateway) keepFile(ctx context.Context, want registryRequest, found keptAnswer,
	from io.Reader) (keptAnswer, error) {
	file, err := os.CreateTemp(g.scratch, "fetched-")
	if err != nil {
		return keptAnswer{}, err
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return keptAnswer{}, err
	}
	sum := sha256.New()
	if found.Size, err = io.Copy(io.MultiWriter(file, sum), bounded(from, maxFile)); err != nil {
		return keptAnswer{}, err
	}
	found.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return keptAnswer{}, err
	}
	if err := g.store.PutReader(ctx, want.object(found.SHA256), file, found.Size); err != nil {
		return keptAnswer{}, err
	}
	data, err := json.Marshal(found)
	if err != nil {
		return keptAnswer{}, err
	}
	err = g.store.PutIfAbsent(ctx, want.key(), data)
	if errors.Is(err, storage.ErrExists) { // another runner was first
		return g.load(ctx, want)
	}
	return found, err
}

// errElsewhere says that a registry sends its clients to a place that the operator has not named.
var errElsewhere = errors.New("the registry sends its clients elsewhere: name that place too (--registry NAME=URL,FILES-URL)")

// redirected follows a mirror to places that the operator named.
func (g *Gateway) redirected(to *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return errElsewhere
	}
	for _, bases := range g.registries {
		from := slices.ContainsFunc(bases, func(base *url.URL) bool { return isBelow(base, via[0].URL) })
		if from && slices.ContainsFunc(bases, func(base *url.URL) bool { return isBelow(base, to.URL) }) {
			return nil
		}
	}
	return errElsewhere
}

// isBelow reports whether a URL is below a base.
func isBelow(base, u *url.URL) bool {
	return u.Scheme == base.Scheme && u.Host == base.Host && u.User == nil &&
		strings.HasPrefix(u.EscapedPath(), base.EscapedPath())
}

// keptBody reads a kept answer in pieces, and fails at its end where it is
// another one than was kept.
type keptBody struct {
	ctx   context.Context
	store storage.Store
	key   string
	size  int64
	want  string
	at    int64
	piece []byte
	sum   hash.Hash
}

// pieceBytes is how much of a kept answer is in memory at once.
const pieceBytes = 1 << 20

func (b *keptBody) Read(into []byte) (int, error) {
	if b.sum == nil {
		b.sum = sha256.New()
	}
	if len(b.piece) == 0 {
		if b.at == b.size {
			if hex.EncodeToString(b.sum.Sum(nil)) != b.want {
				return 0, fmt.Errorf("%s: %w", b.key, storage.ErrCorrupt)
			}
			return 0, io.EOF
		}
		piece, err := b.store.GetRange(b.ctx, b.key, b.at, min(pieceBytes, b.size-b.at))
		if err != nil {
			return 0, err
		}
		b.sum.Write(piece)
		b.piece = piece
		b.at += int64(len(piece))
	}
	n := copy(into, b.piece)
	b.piece = b.piece[n:]
	return n, nil
}
