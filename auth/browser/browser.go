// Package browser protects HTTP servers without keys from pages in a browser. Such a
// server answers whoever reaches its address, and any page that is open in a browser on
// the same machine can reach that.
package browser

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Check says why a request must not be answered by a server without keys on this machine, "" if it
// may be. A page whose own name was made to lead here (DNS rebinding) is told by the Host header,
// any other page by what the browser says of its origin.
func Check(r *http.Request) (reason string) {
	if !loopback(r.Host) {
		return fmt.Sprintf("the host is %.80q: a server without keys is reached as localhost or 127.0.0.1 only", r.Host)
	}
	return checkOrigin(r)
}

func checkOrigin(r *http.Request) (reason string) {
	if http.NewCrossOriginProtection().Check(r) != nil || !sameOrigin(r) {
		return "a page of another origin must not use a server without keys"
	}
	return ""
}

// Guard serves what may be answered on an address. A server that listens beyond this machine
// answers to hosts that no page's owner can point to it, and to names, which the operator lists.
func Guard(address net.Addr, names []string, next http.Handler) http.Handler {
	here := loopback(address.String())
	own, _ := os.Hostname()
	names = append(slices.Clip(names), own)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reason := checkOrigin(r)
		if host := hostname(r.Host); !listed(host, names) && (here && !loopback(r.Host) || !here && public(host)) {
			reason = fmt.Sprintf("the host is %.80q: allow it with --allow-host if it is a name of this server", r.Host)
		}
		if reason != "" {
			http.Error(w, reason, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func listed(host string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return name != "" && strings.EqualFold(name, host) })
}

// private are top-level domains whose names nobody can register.
var private = []string{".localhost", ".local", ".internal"}

// public reports whether a host is a name that somebody elsewhere may own, and so point to this
// server (DNS rebinding). Addresses and names of one part, as containers have, are none. No
// browser sends an empty one.
func public(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && strings.Contains(host, ".") &&
		!slices.ContainsFunc(private, func(domain string) bool { return strings.HasSuffix(host, domain) })
}

// sameOrigin reports whether a request's page, if any, came from the server itself.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	_, host, _ := strings.Cut(origin, "://")
	return origin == "" || strings.EqualFold(host, r.Host)
}

// loopback reports whether a host, with or without a port, is this machine.
func loopback(host string) bool {
	host = hostname(host)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.IsLoopback()
}

// hostname is a host without its port, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}
