package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// result is a file that changes.
type result struct {
	name  string
	mode  fs.FileMode
	text  []byte
	notes []note
}

// note is a place that needs a decision.
type note struct {
	line int
	text string
}

// maxFile is the size of the largest file that is read, in bytes.
const maxFile = 8 << 20

// rewriteDirectory rewrites the Go files of a directory.
func rewriteDirectory(dir string) ([]result, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*rewriter
	known := newKinds()
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxFile || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", name, maxFile)
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		known.declare(f)
		files = append(files, &rewriter{
			fset: fset, file: f, name: name, mode: info.Mode(), edits: edits{source: string(source)}, kinds: known,
			old: oldImports(f), used: map[string]bool{}, helpers: map[string]bool{},
		})
	}
	for _, r := range files {
		known.declareScopes(r.file)
	}
	for _, r := range files {
		known.declareLocals(r.file)
	}
	return rewriteFiles(files)
}

// rewriteFiles rewrites the files of a package. A helper is written once, into the first file that
// needs it.
func rewriteFiles(files []*rewriter) ([]result, error) {
	var results []result
	written := map[string]bool{}
	for _, r := range files {
		r.rewrite()
		if len(r.list) == 0 {
			continue
		}
		key := r.file.Name.Name + " "
		for _, name := range sortedKeys(r.helpers) {
			if !written[key+name] {
				written[key+name] = true
				end := len(r.source)
				r.replace(end, end, r.expand(helpers[name]))
			}
		}
		r.rewriteImports()
		text, err := format.Source([]byte(r.text(0, len(r.source))))
		if err != nil {
			return nil, fmt.Errorf("%s: the result is not valid Go, please report this file: %w", r.name, err)
		}
		slices.SortFunc(r.notes, func(a, b note) int { return cmp.Compare(a.line, b.line) })
		results = append(results, result{r.name, r.mode.Perm(), text, r.notes})
	}
	return results, nil
}

func sortedKeys(m map[string]bool) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// rewriter rewrites one file.
type rewriter struct {
	edits
	fset    *token.FileSet
	file    *ast.File
	name    string
	mode    fs.FileMode
	kinds   *kinds
	old     map[string]string // upstream packages by their names in the file
	used    map[string]bool   // new packages
	helpers map[string]bool
	notes   []note
	path    []ast.Node // from the file to the current node
}

func (r *rewriter) rewrite() {
	// The parts of a node are rewritten before the node.
	ast.Inspect(r.file, func(n ast.Node) bool {
		if n != nil {
			r.path = append(r.path, n)
			_, isImport := n.(*ast.ImportSpec)
			if isImport {
				r.path = r.path[:len(r.path)-1]
			}
			return !isImport
		}
		last := r.path[len(r.path)-1]
		r.visit(last)
		r.path = r.path[:len(r.path)-1]
		return true
	})
}

// pkg returns the name of a package of the new module: another one if the code has a variable of
// this name.
func (r *rewriter) pkg(name string) string {
	r.used[name] = true
	if len(r.kinds.scopes[name]) > 0 {
		return "dlite" + name
	}
	return name
}

// qualified returns a name of the new module as this file spells it.
func (r *rewriter) qualified(name string) string {
	p, rest, _ := strings.Cut(name, ".")
	return r.pkg(p) + "." + rest
}

// expand replaces the names of packages between "@".
func (r *rewriter) expand(text string) string {
	parts := strings.Split(text, "@")
	for i := 1; i < len(parts); i += 2 {
		parts[i] = r.pkg(parts[i])
	}
	return strings.Join(parts, "")
}

func (r *rewriter) at(p token.Pos) int { return r.fset.Position(p).Offset }

func (r *rewriter) textOf(n ast.Node) string { return r.text(r.at(n.Pos()), r.at(n.End())) }

func (r *rewriter) put(n ast.Node, text string) { r.replace(r.at(n.Pos()), r.at(n.End()), text) }

// function returns the declaration around the current node.
func (r *rewriter) function() *ast.FuncDecl {
	for _, n := range r.path {
		if fn, ok := n.(*ast.FuncDecl); ok {
			return fn
		}
	}
	return nil
}

func (r *rewriter) kindOf(e ast.Expr) string { return r.kinds.of(r.old, r.function(), e) }

// parent returns the node around the current node.
func (r *rewriter) parent() ast.Node {
	if len(r.path) < 2 {
		return nil
	}
	return r.path[len(r.path)-2]
}

// mark adds a comment above the statement or declaration of the current node.
func (r *rewriter) mark(text string) {
	var place ast.Node = r.file
	for _, n := range r.path {
		switch n.(type) {
		case *ast.BlockStmt:
		case ast.Stmt, ast.Decl, ast.Spec, *ast.Field:
			place = n
		}
	}
	line := r.fset.Position(place.Pos()).Line
	n := note{line, text}
	if slices.Contains(r.notes, n) {
		return
	}
	r.notes = append(r.notes, n)
	start := r.at(place.Pos())
	begin := strings.LastIndexByte(r.source[:start], '\n') + 1
	r.list = append(r.list, edit{begin, begin, "// MIGRATE: " + text + "\n"})
}

// rewriteImports replaces the imports of the upstream module by imports of the new one.
func (r *rewriter) rewriteImports() {
	var lines []string
	for _, name := range sortedKeys(r.used) {
		path := newModule + "/" + name
		if name == "time" {
			if r.imports("time") {
				continue
			}
			path = name
		}
		line := `"` + path + `"`
		if local := r.pkg(name); local != name {
			line = local + " " + line
		}
		lines = append(lines, line)
	}
	for _, d := range r.file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.IMPORT {
			continue
		}
		for _, spec := range decl.Specs {
			s := spec.(*ast.ImportSpec)
			if _, isOld := oldPackage(s); !isOld {
				continue
			}
			switch {
			case decl.Lparen.IsValid():
				r.put(s, strings.Join(lines, "\n"))
			case len(lines) == 0:
				r.put(decl, "")
			default:
				r.put(decl, "import "+strings.Join(lines, "\nimport "))
			}
			lines = nil
		}
	}
	if len(lines) > 0 { // the file imported nothing of the upstream module
		end := r.at(r.file.Name.End())
		r.replace(end, end, "\n\nimport (\n"+strings.Join(lines, "\n")+"\n)")
	}
}

func (r *rewriter) imports(path string) bool {
	return slices.ContainsFunc(r.file.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"`+path+`"` })
}
