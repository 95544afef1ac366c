package toolserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// maxPages bounds the parts in which a server may list its tools.
const maxPages = 32

// List asks a server for all its tools. Nothing but their number is checked.
func (s *Sessions) List(ctx context.Context, server toolset.Server) (listed []toolset.ServerTool, err error) {
	err = s.inSession(ctx, server, startTime, func(ctx context.Context, session *mcp.ClientSession) error {
		listed, err = list(ctx, server.Name, session)
		return err
	})
	if err == nil && len(listed) == 0 {
		err = &fault{fmt.Sprintf("the server %s lists no tools", server.Name)}
	}
	if err != nil {
		return nil, s.failed(server, err)
	}
	// What is recorded is read by everybody.
	if encoded, _ := json.Marshal(listed); s.clean(server, string(encoded)) != string(encoded) {
		return nil, fmt.Errorf("server %s: the description of its tools shows the key that it is asked with",
			server.Name)
	}
	return listed, nil
}

func list(ctx context.Context, name string, session *mcp.ClientSession) (listed []toolset.ServerTool, err error) {
	cursor := ""
	for range maxPages {
		page, err := session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tools {
			listed = append(listed, described(t))
		}
		if len(listed) > toolset.MaxServerTools {
			return nil, &fault{fmt.Sprintf("the server %s lists more than %d tools", name, toolset.MaxServerTools)}
		}
		if cursor = page.NextCursor; cursor == "" {
			return listed, nil
		}
	}
	return nil, &fault{fmt.Sprintf("the server %s lists its tools in more than %d parts", name, maxPages)}
}

// described is a tool as it is recorded.
func described(t *mcp.Tool) toolset.ServerTool {
	recorded := toolset.ServerTool{Name: t.Name, Description: strings.TrimSpace(t.Description)}
	recorded.Parameters, _ = t.InputSchema.(map[string]any) // what is no object takes no arguments
	recorded.ReadOnly = t.Annotations != nil && t.Annotations.ReadOnlyHint
	return recorded
}
