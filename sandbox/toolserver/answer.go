package toolserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// text is what of a result a model can read. What is no text is named.
func text(result *mcp.CallToolResult) string {
	var parts []string
	for _, content := range result.Content {
		parts = append(parts, readable(content))
	}
	if len(parts) == 0 && result.StructuredContent != nil {
		encoded, err := json.Marshal(result.StructuredContent)
		if err == nil {
			parts = append(parts, string(encoded))
		}
	}
	return strings.Join(parts, "\n")
}

func readable(content mcp.Content) string {
	switch c := content.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return notShown("image", c.MIMEType, c.Data)
	case *mcp.AudioContent:
		return notShown("audio", c.MIMEType, c.Data)
	case *mcp.ResourceLink:
		return fmt.Sprintf("[%s: %s]", cmp.Or(c.Title, c.Name, "resource"), c.URI)
	case *mcp.EmbeddedResource:
		switch r := c.Resource; {
		case r == nil:
		case len(r.Blob) > 0:
			return notShown(cmp.Or(r.URI, "resource"), r.MIMEType, r.Blob)
		default:
			return r.Text
		}
	}
	return "[content that cannot be shown]"
}

func notShown(what, kind string, data []byte) string {
	return fmt.Sprintf("[%s of %d bytes, %s: not shown]", what, len(data), cmp.Or(kind, "of no said type"))
}
