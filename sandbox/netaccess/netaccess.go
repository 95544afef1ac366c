// Package netaccess says what programs in a sandbox may reach of the network,
// and what they asked of it.
package netaccess

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Network is what programs in a sandbox may reach outside of it. Their only way there is a proxy of
// the tool runner, whose operator bounds what runs may ask for.
type Network struct {
	// Allow names package registries (see Registries), and hosts: "example.org", "*.example.org"
	// for all names below one, or either with a port. Without one the ports are 80 and 443.
	Allow []string `json:"allow,omitempty" yaml:"allow"`
	// Bytes bounds what one rollout may receive and send, together; 0 is DefaultNetworkBytes.
	Bytes int64 `json:"bytes,omitempty" yaml:"bytes" absent:"the default bound"`
}

// Registries are the package registries that a Network can name.
var Registries = []string{"go", "npm", "pypi"}

// Bounds of a network.
const (
	// DefaultNetworkBytes is what a rollout may receive and send where its run does not say.
	DefaultNetworkBytes = 2 << 30
	maxNetworkBytes     = 1 << 40
	maxAllowed          = 256
	maxHostName         = 253
)

// Limit is how many bytes a rollout may receive and send.
func (n *Network) Limit() int64 { return cmp.Or(n.Bytes, DefaultNetworkBytes) }

// AllowsRegistry reports whether a package registry may be asked.
func (n *Network) AllowsRegistry(name string) bool { return n != nil && slices.Contains(n.Allow, name) }

// AllowsHost reports whether a host may be reached at a port. The name must
// be one that HostName gave.
func (n *Network) AllowsHost(name string, port int) bool {
	return n != nil && slices.ContainsFunc(n.Allow, func(entry string) bool {
		pattern, only := splitAllowed(entry)
		if slices.Contains(Registries, entry) || only != 0 && port != only || only == 0 && port != 80 && port != 443 {
			return false
		}
		below, wild := strings.CutPrefix(pattern, "*.")
		return pattern == name || wild && strings.HasSuffix(name, "."+below)
	})
}

// Covers reports whether all that an entry allows is allowed here.
func (n *Network) Covers(entry string) bool {
	if slices.Contains(Registries, entry) {
		return n.AllowsRegistry(entry)
	}
	pattern, port := splitAllowed(entry)
	if strings.HasPrefix(pattern, "*.") {
		return slices.ContainsFunc(n.Allowed(), func(of string) bool {
			own, only := splitAllowed(of)
			below, wild := strings.CutPrefix(own, "*")
			return wild && strings.HasSuffix(pattern, below) &&
				(only == port || only == 0 && (port == 80 || port == 443))
		})
	}
	if port != 0 {
		return n.AllowsHost(pattern, port)
	}
	return n.AllowsHost(pattern, 80) && n.AllowsHost(pattern, 443)
}

// Allowed are the entries, none of nil.
func (n *Network) Allowed() []string {
	if n == nil {
		return nil
	}
	return n.Allow
}

// splitAllowed takes the port from an entry; 0 for none.
func splitAllowed(entry string) (pattern string, port int) {
	pattern, text, found := strings.Cut(entry, ":")
	if found {
		port, _ = strconv.Atoi(text)
	}
	return pattern, port
}

// CheckAllowed says what is wrong with one entry of a list of what may be reached.
func CheckAllowed(entry string) error {
	if slices.Contains(Registries, entry) {
		return nil
	}
	pattern, text, found := strings.Cut(entry, ":")
	if port, err := strconv.Atoi(text); found &&
		(err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != text) {
		return fmt.Errorf("%.300q: the port must be 1 to 65535", entry)
	}
	bare := strings.TrimPrefix(pattern, "*.")
	name, err := HostName(bare)
	if err != nil || name != bare || !strings.Contains(name, ".") {
		return fmt.Errorf("%.300q: name one of %v, or a host in small letters such as example.org, *.example.org or example.org:8443; addresses cannot be named", entry, Registries)
	}
	return nil
}

// errNoHost says that a text is no host's name.
var errNoHost = errors.New("not the name of a host")

// HostName gives the one spelling of a host's name: small letters, without the dot at the end.
// Addresses, in any spelling that a resolver takes for one, and all that is not letters, digits, -
// and _ between dots, are refused.
func HostName(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if name == "" || len(name) > maxHostName {
		return "", fmt.Errorf("%.300q: %w", text, errNoHost)
	}
	for label := range strings.SplitSeq(name, ".") {
		odd := func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_') }
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, odd) {
			return "", fmt.Errorf("%.300q: %w", text, errNoHost)
		}
	}
	last := name[strings.LastIndex(name, ".")+1:]
	if _, err := netip.ParseAddr(name); err == nil || last[0] >= '0' && last[0] <= '9' { // 10.0.0.1, 0x7f.1, 2130706433
		return "", fmt.Errorf("%.300q: %w", text, errNoHost)
	}
	return name, nil
}

// Validate reports every setting that nothing could work with.
func (n *Network) Validate() (errs []error) {
	if n == nil {
		return nil
	}
	if len(n.Allow) > maxAllowed {
		errs = append(errs, fmt.Errorf("network.allow: %d entries, the limit is %d", len(n.Allow), maxAllowed))
	}
	for _, entry := range n.Allow {
		if err := CheckAllowed(entry); err != nil {
			errs = append(errs, fmt.Errorf("network.allow: %w", err))
		}
	}
	if n.Bytes < 0 || n.Bytes > maxNetworkBytes {
		errs = append(errs, fmt.Errorf("network.bytes %d: must be 0 to %d", n.Bytes, int64(maxNetworkBytes)))
	}
	return errs
}
