package gateway

import (
	"net/http"

	"github.com/rondo-rl/rondo/auth/browser"
)

// trusts refuses what a browser brings from a page that is not the gateway's: without tenants nothing but the address says who may use the
// gateway.
func (g *Gateway) trusts(r *http.Request) error {
	if len(g.tenants) > 0 {
		return nil
	}
	if reason := browser.Check(r); reason != "" {
		return problem(http.StatusForbidden, "forbidden", "%s", reason)
	}
	return nil
}
