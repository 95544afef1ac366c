// Package egress is the way out of sandboxes whose run allows one: a proxy in the tool runner that
// each sandbox reaches at one address of its own loopback.
//
// Package managers speak plain HTTP to it, and it asks the registries' mirrors that the operator
// named. What they answer is kept, by digest, in the run's part of the store, so that a run sees
// each page as it stood when it was first fetched, and a replay fetches nothing. Other programs use
// it as an HTTP proxy, for hosts that the run, its task and the operator of the tool runner all
// allow. Whatever is refused is answered with a sentence that says why.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/storage"
)

// Bounds of what the proxy does, beside the bytes of a rollout.
const (
	connections    = 32 // of one sandbox
	maxHeader      = 16 << 10
	headerTime     = 10 * time.Second // for a request's header, and for the first words of a tunnel
	idleTime       = 2 * time.Minute  // without a byte
	dialTime       = 10 * time.Second
	answerTime     = time.Minute      // until a server answers
	requestTime    = 30 * time.Minute // for the whole of a request or a tunnel
	maxIndex       = 64 << 20         // bytes of a page that is rewritten
	maxFile        = 4 << 30          // bytes of a package's file
	downloads      = 4                // at once in a process
	maxRedirects   = 5
	maxListed      = 10_000 // requests of one turn that are listed
	maxURL         = 256    // bytes of one in the list
	maxReason      = 200
	maxServerBytes = 64 << 10 // of a server's header
)

// Options are what the operator of a tool runner allows, and where it finds registries.
type Options struct {
	// Allow bounds what runs may ask for; without entries no run reaches anything.
	Allow []string
	// Registries replace the public ones, by name: the base URL of the index, and those below which
	// its files are if they are elsewhere.
	Registries map[string][]string
	// Scratch is a folder with room for files while they are fetched; "" is the system's.
	Scratch string
}

// public are the registries where the operator names no others.
var public = map[string][]string{
	"pypi": {"https://pypi.org/simple/", "https://files.pythonhosted.org/"},
	"npm":  {"https://registry.npmjs.org/"},
	"go":   {"https://proxy.golang.org/"},
}

// ParseRegistry reads NAME=URL[,FILES-URL...].
func ParseRegistry(text string) (name string, bases []string, err error) {
	name, list, found := strings.Cut(text, "=")
	if !found || !slices.Contains(netaccess.Registries, name) {
		return "", nil, fmt.Errorf("%.200q: want NAME=URL[,FILES-URL...] with one of %v", name, netaccess.Registries)
	}
	bases = strings.Split(list, ",")
	_, err = parseBases(bases)
	return name, bases, err
}

func parseBases(texts []string) ([]*url.URL, error) {
	var bases []*url.URL
	for _, text := range texts {
		base, err := url.Parse(text)
		if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil ||
			base.RawQuery != "" || base.Fragment != "" {
			return nil, errors.New("a registry's URL must be like https://mirror.example.org/pypi/, without user, password and query")
		}
		base.Path = strings.TrimSuffix(base.Path, "/") + "/"
		base.RawPath = ""
		bases = append(bases, base)
	}
	return bases, nil
}

// Gateway is what the proxies of one process share.
type Gateway struct {
	store      storage.Store
	bound      netaccess.Network
	registries map[string][]*url.URL
	mirrors    *http.Client    // asks the operator's registries
	hosts      *http.Transport // asks whatever else is allowed
	loading    singleflight.Group
	slots      chan struct{}
	scratch    string
	// resolve and dial are what tests replace; own are this machine's addresses.
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	own     func() ([]net.Addr, error)
}

// New makes a gateway.
func New(store storage.Store, opts Options) (*Gateway, error) {
	g := &Gateway{
		store: store, bound: netaccess.Network{Allow: opts.Allow}, registries: map[string][]*url.URL{},
		slots: make(chan struct{}, downloads), scratch: opts.Scratch,
		resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".") // with the dot no search list applies
		},
		dial: (&net.Dialer{Timeout: dialTime}).DialContext, own: net.InterfaceAddrs,
	}
	for _, entry := range opts.Allow {
		if err := netaccess.CheckAllowed(entry); err != nil {
			return nil, err
		}
	}
	for _, name := range netaccess.Registries {
		texts := opts.Registries[name]
		if len(texts) == 0 {
			texts = public[name]
		}
		bases, err := parseBases(texts)
		if err != nil {
			return nil, fmt.Errorf("registry %s: %w", name, err)
		}
		g.registries[name] = bases
	}
	transport := func() *http.Transport {
		return &http.Transport{
			TLSHandshakeTimeout: dialTime, ResponseHeaderTimeout: answerTime, MaxResponseHeaderBytes: maxServerBytes,
			IdleConnTimeout: time.Minute, DisableCompression: true,
		}
	}
	mirrors := transport()
	mirrors.Proxy, mirrors.DialContext = http.ProxyFromEnvironment, (&net.Dialer{Timeout: dialTime}).DialContext
	g.mirrors = &http.Client{Transport: mirrors, CheckRedirect: g.redirected}
	g.hosts = transport()
	g.hosts.DialContext = func(ctx context.Context, _,
		address string) (net.Conn, error) {
		return g.connect(ctx, address)
	}
	return g, nil
}

// Env makes programs use the proxy at an address of the sandbox's loopback. Versions of packages
// are looked up at their registry where that is allowed.
func Env(address string, allows func(registry string) bool) map[string]string {
	proxy := "http://" + address
	env := map[string]string{"NO_PROXY": "127.0.0.1,localhost,::1"}
	env["HTTP_PROXY"], env["HTTPS_PROXY"] = proxy, proxy
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		env[strings.ToLower(name)] = env[name]
	}
	if allows("pypi") {
		index := proxy + "/pypi/simple/"
		env["PIP_INDEX_URL"], env["UV_DEFAULT_INDEX"] = index, index
		// seconds: the proxy answers when it has the whole file
		env["PIP_DISABLE_PIP_VERSION_CHECK"], env["PIP_DEFAULT_TIMEOUT"] = "1", "300"
	}
	if allows("npm") {
		env["npm_config_registry"] = proxy + "/npm/"
		env["npm_config_audit"], env["npm_config_fund"], env["npm_config_update_notifier"] = "false", "false", "false"
	}
	if allows("go") {
		// the operator's mirror is trusted, and go.sum is checked all the same
		env["GOPROXY"], env["GOSUMDB"] = proxy+"/go", "off"
	}
	return env
}

// Session is what one sandbox may do.
type Session struct {
	Run string
	// Network is the run's; Task is what the task narrows it to, nil for all of it.
	Network, Task *netaccess.Network
	// Used is how many bytes the rollout has received and sent before.
	Used int64
	// Replay lets nothing be fetched: what the run has kept is all there is.
	Replay bool
	// Model answers what is asked of the proxy's own address but for the registries; nil is none.
	Model http.Handler
	// Refused are, for a replay, the URLs that were refused when it was recorded, with the reasons.
	Refused map[string]string
}

// Registry reports whether a session's run, its task and the operator allow a registry.
func (g *Gateway) Registry(s Session, name string) bool { return g.refusesRegistry(s, name) == "" }

// refusesRegistry says who does not allow a registry, "" for nobody.
func (g *Gateway) refusesRegistry(s Session, name string) string {
	return g.refuses(s, func(n *netaccess.Network) bool { return n.AllowsRegistry(name) }, "the registry "+name)
}

// refusesHost says who does not allow a host at a port, "" for nobody.
func (g *Gateway) refusesHost(s Session, host string, port int) string {
	return g.refuses(s, func(n *netaccess.Network) bool { return n.AllowsHost(host, port) },
		fmt.Sprintf("%s port %d", host, port))
}

func (g *Gateway) refuses(s Session, allows func(*netaccess.Network) bool, what string) string {
	switch {
	case !allows(s.Network):
		return "network.allow of the run does not name " + what
	case s.Task != nil && !allows(s.Task):
		return "the task asks for less of the network than " + what
	case !s.Replay && !allows(&g.bound):
		return "this tool runner lets no run reach " + what + " (--allow-network)"
	}
	return ""
}

// errAddress says that a name leads where no sandbox may go.
var errAddress = errors.New("the name leads to an address that is not public")

// connect resolves a name and connects to the very address that it looked at. A name of which one
// address is not public is refused as a whole.
func (g *Gateway) connect(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	found, err := g.resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be resolved", host)
	}
	for _, ip := range found {
		if !g.reachable(ip) {
			return nil, fmt.Errorf("%s: %w", host, errAddress)
		}
	}
	const most = 4
	err = fmt.Errorf("%s has no address", host)
	for _, ip := range found[:min(len(found), most)] {
		var conn net.Conn
		if conn, err = g.dial(ctx, "tcp", net.JoinHostPort(ip.Unmap().String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("%s cannot be connected to: %w", host, err)
}

// closed are ranges that are no single public host's, beside those that netip knows: shared,
// documentation, benchmarks, reserved, translated and tunnelled addresses, behind which private
// ones may be, and the metadata service of one provider.
var closed = func() (list []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "168.63.129.16/32",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
		"3fff::/20", "fec0::/10",
	} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}()

// reachable reports whether an address is a public one of another machine.
func (g *Gateway) reachable(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() ||
		slices.ContainsFunc(closed, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return false
	}
	own, err := g.own()
	return err == nil && !slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip
	})
}
