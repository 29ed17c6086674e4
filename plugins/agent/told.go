package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Told returns what a first message says about MCP servers and folders of skills in
// the sandbox that an agent does not make known to its model itself. Empty without any.
func Told(servers []Server, skills []string) string {
	var b strings.Builder
	if len(servers) > 0 {
		b.WriteString("\n\nThese MCP servers can be reached from the sandbox with a client of your own:\n")
	}
	for _, s := range servers {
		if s.Transport == "stdio" {
			fmt.Fprintf(&b, "- %s: stdio, started as: %s\n", s.Name, strings.Join(slices.Concat(pairs(s.Env, "="), []string{s.Command}, s.Args), " "))
			continue
		}
		fmt.Fprintf(&b, "- %s: %s at %s\n", s.Name, s.Transport, s.URL)
		for _, h := range pairs(s.Headers, ": ") {
			fmt.Fprintf(&b, "  with the header %s\n", h)
		}
	}
	if len(skills) > 0 {
		fmt.Fprintf(&b, "\n\nSkills that may help are in %s: read the SKILL.md of one before you use it.\n", strings.Join(skills, ", "))
	}
	return b.String()
}

func pairs(m map[string]string, sign string) (list []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+sign+m[k])
	}
	return list
}

// Told returns what the first message of a session says to an agent with these needs.
func (n Needs) Told(servers []Server, skills []string) string {
	if n.Skills {
		skills = nil
	}
	return Told(slices.DeleteFunc(slices.Clone(servers), func(s Server) bool { return slices.Contains(n.MCP, s.Transport) }), skills)
}
