package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	common "github.com/delegate-io/dlite/examples/internal/program"
)

type versionCommand struct{}

// Help is the text below the flags.
func (*versionCommand) Help() string {
	return `Examples:
  $ dlite version`
}

// Run prints the version.
func (*versionCommand) Run(p *program) error {
	line := common.Describe("dlite")
	return p.print(map[string]string{"version": common.Version()}, table{names: []string{common.Version()}, rows: [][]string{{line}}})
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is the text below the flags.
func (*completionCommand) Help() string {
	return `Load it with: source <(dlite completion bash), or: dlite completion fish | source

Examples:
  $ dlite completion bash`
}

// Run prints the script. The words of each command are in it, so that a completion calls nothing.
func (c *completionCommand) Run(p *program, k *kong.Context) error {
	var b strings.Builder
	if c.Shell == "fish" {
		completeFish(&b, k.Model.Node)
	} else {
		if c.Shell == "zsh" { // zsh runs the function for bash
			b.WriteString("(( $+functions[compdef] )) || { autoload -U compinit && compinit -i; }\nautoload -U +X bashcompinit && bashcompinit\n")
		}
		completeBash(&b, k.Model.Node)
	}
	return p.write(b.String())
}

func completeBash(b *strings.Builder, root *kong.Node) {
	var names []string
	b.WriteString("_dlite() {\n  local words\n  case \"${COMP_WORDS[1]}\" in\n")
	for _, n := range root.Children {
		names = append(names, n.Name)
		fmt.Fprintf(b, "    %s) words=%s ;;\n", n.Name, quoted(strings.Join(append(argumentsOf(n), flagsOf(n)...), " ")))
	}
	all := strings.Join(append(names, flagsOf(root)...), " ")
	fmt.Fprintf(b, "  esac\n  [ \"$COMP_CWORD\" -gt 1 ] || words=%s\n", quoted(all))
	b.WriteString("  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -o default -F _dlite dlite\n")
}

func completeFish(b *strings.Builder, root *kong.Node) {
	flags := func(n *kong.Node, when string) {
		for _, f := range n.Flags {
			fmt.Fprintf(b, "complete -c dlite%s -l %s -d %s\n", when, f.Name, quoted(f.Help))
		}
	}
	flags(root, "")
	for _, n := range root.Children {
		fmt.Fprintf(b, "complete -c dlite -n __fish_use_subcommand -f -a %s -d %s\n", n.Name, quoted(n.Help))
		when := " -n '__fish_seen_subcommand_from " + n.Name + "'"
		if words := argumentsOf(n); len(words) > 0 {
			fmt.Fprintf(b, "complete -c dlite%s -f -a %s\n", when, quoted(strings.Join(words, " ")))
		}
		flags(n, when)
	}
}

// argumentsOf returns the words that an argument of a command may be.
func argumentsOf(n *kong.Node) []string {
	var words []string
	for _, child := range n.Children {
		words = append(words, child.Name)
	}
	for _, a := range n.Positional {
		if a.Enum != "" {
			words = append(words, a.EnumSlice()...)
		}
	}
	return words
}

func flagsOf(n *kong.Node) []string {
	var words []string
	for _, f := range n.Flags {
		words = append(words, "--"+f.Name)
	}
	return words
}

// quoted quotes a text for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
