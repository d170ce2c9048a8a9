package main

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// kinds knows which names of a package have an upstream type. A type is written as in the upstream
// packages, such as client.Task, without the pointer. A name with two types has none.
type kinds struct {
	fields, globals, functions map[string]string
	methods                    map[string]bool // such as T.Acquire
	locals                     map[*ast.FuncDecl]map[string]string
	scopes                     map[string][]scope // of local names
}

// scope is the part of a file in which a local name is known.
type scope struct{ from, to token.Pos }

func newKinds() *kinds {
	return &kinds{methods: map[string]bool{}, fields: map[string]string{}, globals: map[string]string{}, functions: map[string]string{}, locals: map[*ast.FuncDecl]map[string]string{}, scopes: map[string][]scope{}}
}

func learn(names map[string]string, name, kind string) {
	if before, known := names[name]; known && before != kind {
		kind = ""
	}
	if name != "_" {
		names[name] = kind
	}
}

// isPackage reports whether a name means an import, and not a variable.
func (k *kinds) isPackage(old map[string]string, name *ast.Ident) bool {
	return old[name.Name] != "" && !slices.ContainsFunc(k.scopes[name.Name], func(s scope) bool { return s.from <= name.Pos() && name.Pos() < s.to })
}

// declareScopes learns where the local names of a file are known.
func (k *kinds) declareScopes(f *ast.File) {
	var path []ast.Node
	declare := func(e ast.Node, from token.Pos) {
		name, ok := e.(*ast.Ident)
		if !ok || name == nil {
			return
		}
		for i := len(path) - 1; i >= 0; i-- {
			switch block := path[i].(type) {
			case *ast.BlockStmt, *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.CaseClause, *ast.CommClause, *ast.FuncDecl, *ast.FuncLit:
				k.scopes[name.Name] = append(k.scopes[name.Name], scope{from, block.End()})
				return
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, n)
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, left := range n.Lhs {
					declare(left, n.End())
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				declare(n.Key, n.Body.Pos())
				declare(n.Value, n.Body.Pos())
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				declare(name, n.End())
			}
		case *ast.FuncDecl:
			declareFields(n.Recv, n.Type.End(), declare)
			declareFields(n.Type.Params, n.Type.End(), declare)
			declareFields(n.Type.Results, n.Type.End(), declare)
		case *ast.FuncLit:
			declareFields(n.Type.Params, n.Type.End(), declare)
			declareFields(n.Type.Results, n.Type.End(), declare)
		}
		return true
	})
}

func declareFields(list *ast.FieldList, from token.Pos, declare func(ast.Node, token.Pos)) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			declare(name, from)
		}
	}
}

// oldImports returns the local names of the upstream packages in a file.
func oldImports(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range f.Imports {
		name, isOld := oldPackage(spec)
		if !isOld {
			continue
		}
		local := name
		if spec.Name != nil {
			local = spec.Name.Name
		}
		names[local] = name
	}
	return names
}

// oldPackage returns the name of the upstream package that an import names.
func oldPackage(spec *ast.ImportSpec) (string, bool) {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return "", false
	}
	for _, module := range oldModules {
		if strings.HasPrefix(p, module+"/") {
			return path.Base(p), true
		}
	}
	return "", false
}

// typeKind returns the upstream type that a type expression names.
func typeKind(old map[string]string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeKind(old, e.X)
	case *ast.ParenExpr:
		return typeKind(old, e.X)
	case *ast.ArrayType:
		if kind := typeKind(old, e.Elt); kind != "" {
			return "[]" + kind
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && old[x.Name] != "" {
			return old[x.Name] + "." + e.Sel.Name
		}
	}
	return ""
}

// declare learns the types of fields, functions and variables of the package.
func (k *kinds) declare(f *ast.File) {
	old := oldImports(f)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				k.methods[receiver(d)+"."+d.Name.Name] = true
			}
			if results := d.Type.Results; results != nil && len(results.List) > 0 {
				learn(k.functions, d.Name.Name, typeKind(old, results.List[0].Type))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					k.declareValues(old, v, k.globals, nil)
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					learn(k.fields, name.Name, typeKind(old, field.Type))
				}
			}
		}
		return true
	})
}

func (k *kinds) declareValues(old map[string]string, v *ast.ValueSpec, into map[string]string, fn *ast.FuncDecl) {
	for i, name := range v.Names {
		switch {
		case v.Type != nil:
			learn(into, name.Name, typeKind(old, v.Type))
		case i < len(v.Values):
			learn(into, name.Name, k.of(old, fn, v.Values[i]))
		}
	}
}

// declareLocals learns the types of the variables of the functions of a file.
func (k *kinds) declareLocals(f *ast.File) {
	old := oldImports(f)
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		names := map[string]string{}
		k.locals[fn] = names
		fields := func(list *ast.FieldList) {
			if list == nil {
				return
			}
			for _, field := range list.List {
				for _, name := range field.Names {
					learn(names, name.Name, typeKind(old, field.Type))
				}
			}
		}
		fields(fn.Recv)
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType:
				fields(n.Params)
				fields(n.Results)
			case *ast.ValueSpec:
				k.declareValues(old, n, names, fn)
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					k.declareAssigned(old, fn, n, names)
				}
			case *ast.RangeStmt:
				if v, ok := n.Value.(*ast.Ident); ok && n.Tok == token.DEFINE {
					learn(names, v.Name, strings.TrimPrefix(k.of(old, fn, n.X), "[]"))
				}
			}
			return true
		})
	}
}

func (k *kinds) declareAssigned(old map[string]string, fn *ast.FuncDecl, n *ast.AssignStmt, names map[string]string) {
	for i, left := range n.Lhs {
		name, ok := left.(*ast.Ident)
		if !ok {
			continue
		}
		switch {
		case len(n.Lhs) == len(n.Rhs):
			learn(names, name.Name, k.of(old, fn, n.Rhs[i]))
		case i == 0:
			learn(names, name.Name, k.of(old, fn, n.Rhs[0])) // the first result of a call
		default:
			learn(names, name.Name, "")
		}
	}
}

// of returns the upstream type of an expression, or an empty string.
func (k *kinds) of(old map[string]string, fn *ast.FuncDecl, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return k.of(old, fn, e.X)
	case *ast.StarExpr:
		return k.of(old, fn, e.X)
	case *ast.UnaryExpr:
		return k.of(old, fn, e.X)
	case *ast.CompositeLit:
		return typeKind(old, e.Type)
	case *ast.IndexExpr:
		kind, isList := strings.CutPrefix(k.of(old, fn, e.X), "[]")
		if isList {
			return kind
		}
	case *ast.Ident:
		if kind, known := k.locals[fn][e.Name]; known {
			return kind
		}
		return k.globals[e.Name]
	case *ast.SelectorExpr:
		if kind := k.of(old, fn, e.X); kind != "" {
			return fieldTypes[kind+"."+e.Sel.Name]
		}
		return k.fields[e.Sel.Name]
	case *ast.CallExpr:
		return k.ofCall(old, fn, e)
	}
	return ""
}

func (k *kinds) ofCall(old map[string]string, fn *ast.FuncDecl, e *ast.CallExpr) string {
	switch f := e.Fun.(type) {
	case *ast.Ident:
		if f.Name == "new" && len(e.Args) == 1 {
			return typeKind(old, e.Args[0])
		}
		return k.functions[f.Name]
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && k.isPackage(old, x) {
			return resultTypes[old[x.Name]+"."+f.Sel.Name]
		}
		if kind := k.of(old, fn, f.X); kind != "" {
			return resultTypes[kind+"."+f.Sel.Name]
		}
		return k.functions[f.Sel.Name]
	}
	return ""
}
