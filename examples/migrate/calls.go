package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// rewritesCall reports whether [rewriter.call] rewrites the calls of an upstream function.
func rewritesCall(name string) bool {
	switch name {
	case "delegate.New", "delegate.NewFromToken", "delegate.NewTokenCache", "delegate.Token", "poller.New", "httphelper.WriteNotFound", "httphelper.WriteInternalError",
		"logger.WriteNotFound", "logger.WriteInternalError":
		return true
	}
	return false
}

func (r *rewriter) call(n *ast.CallExpr) {
	name := r.oldName(n.Fun)
	if name == "" {
		r.methodCall(n)
		return
	}
	switch {
	case isNewClient(name, n):
		if assign, ok := r.parent().(*ast.AssignStmt); ok && len(assign.Rhs) == 1 && len(assign.Lhs) == 1 {
			return // the statement is rewritten
		}
		r.helpers["mustClient"] = true
		r.put(n, "mustClient("+r.newClient(name, n)+")")
	case name == "delegate.NewTokenCache" && len(n.Args) == 2:
		r.helpers["accountTokens"] = true
		r.put(n, "newAccountTokens("+r.arguments(n.Args)+")")
	case name == "delegate.Token" && len(n.Args) == 5:
		r.helpers["delegateToken"] = true
		r.put(n, "delegateToken("+r.arguments(n.Args[2:])+")")
	case name == "poller.New" && len(n.Args) == 6:
		r.put(n, r.qualified("poller.New")+"("+r.arguments(n.Args[4:])+", "+r.qualified("poller.WithName")+"("+r.textOf(n.Args[2])+")"+r.tags(n.Args[3])+")")
	case strings.HasSuffix(name, ".WriteNotFound") && len(n.Args) == 2:
		r.put(n, r.qualified("task.WriteError")+"("+r.textOf(n.Args[0])+", &"+r.qualified("task.Error")+"{Status: 404, Err: "+r.textOf(n.Args[1])+"})")
	case strings.HasSuffix(name, ".WriteInternalError") && len(n.Args) == 2:
		r.put(n, r.qualified("task.WriteError")+"("+r.arguments(n.Args)+")")
	case rewritesCall(name):
		r.mark(name + " is called with arguments that the last version does not have: docs/migrating.md has its counterpart")
	}
}

func (r *rewriter) arguments(list []ast.Expr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, r.textOf(a))
	}
	return strings.Join(texts, ", ")
}

func (r *rewriter) tags(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "nil" {
			return ""
		}
	case *ast.CompositeLit:
		if len(e.Elts) == 0 {
			return ""
		}
		return ", " + r.qualified("poller.WithTags") + "(" + r.arguments(e.Elts) + ")"
	}
	return ", " + r.qualified("poller.WithTags") + "(" + r.textOf(e) + "...)"
}

// isNewClient reports whether a call makes a client. Older versions have no argument for a directory of certificates.
func isNewClient(name string, n *ast.CallExpr) bool {
	return (name == "delegate.New" || name == "delegate.NewFromToken") && (len(n.Args) == 4 || len(n.Args) == 5)
}

// newClient returns the call that makes a client.
func (r *rewriter) newClient(name string, n *ast.CallExpr) string {
	endpoint, account, secret := r.textOf(n.Args[0]), r.textOf(n.Args[1]), r.textOf(n.Args[2])
	call := r.qualified("client.New") + "(" + endpoint + ", " + account + ", "
	var dir ast.Expr = &ast.BasicLit{Kind: token.STRING, Value: `""`}
	if len(n.Args) == 5 {
		dir = n.Args[4]
	}
	options, list := r.clientOptions(n.Args[3], dir)
	if name == "delegate.New" {
		return call + secret + options + ")"
	}
	withToken := r.qualified("client.WithToken") + "(" + secret + ")"
	if list {
		return call + `"", append(` + strings.TrimSuffix(strings.TrimPrefix(options, ", "), "...") + ", " + withToken + ")...)"
	}
	return call + `"", ` + withToken + options + ")"
}

// clientOptions returns the options for the arguments skipVerify and certsDir, and reports whether
// they are one list.
func (r *rewriter) clientOptions(skip, dir ast.Expr) (options string, list bool) {
	skipName, isName := skip.(*ast.Ident)
	dirText, isText := dir.(*ast.BasicLit)
	if isText && (!isName || dirText.Value == `""`) || isName && (skipName.Name == "true" || skipName.Name == "false") {
		noDir := isText && (dirText.Value == `""` || dirText.Value == "``")
		switch {
		case isName && skipName.Name == "true":
			return ", " + r.qualified("client.WithInsecureSkipVerify") + "()", false
		case isName && skipName.Name == "false" && noDir:
			return "", false
		case isName && skipName.Name == "false" && isText:
			return ", " + r.qualified("client.WithCACertsDir") + "(" + dirText.Value + ")", false
		}
	}
	r.helpers["clientOptions"] = true
	text := ""
	if isText {
		text = dirText.Value
	} else {
		text = r.textOf(dir)
	}
	return ", clientOptions(" + r.textOf(skip) + ", " + text + ")...", true
}

// methodCall rewrites the call of a method of an upstream type.
func (r *rewriter) methodCall(n *ast.CallExpr) {
	f, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	kind, method := r.kindOf(f.X), f.Sel.Name
	isClient := kind == "client.Client" || kind == "delegate.HTTPClient"
	switch {
	case kind == "poller.Poller" && method == "SetFilter" && len(n.Args) == 1:
		r.setFilter(n, f)
	case kind == "delegate.TokenCache" && method == "GetTokenHash":
		r.mark("the client sends no hash of the secret: remove it")
	case kind == "router.Router" && method == "Routes":
		r.put(f.Sel, "Types")
	case kind == "router.Router" && method == "Route":
		r.mark("a router has no Route: the router is an http.Handler that runs the handler of a task; to run one handler, use the map of the routes")
	case isClient && method == "RegisterCapacity" && len(n.Args) == 3:
		r.registerCapacity(n, f)
	case isClient && method == "GetTaskEvents" && len(n.Args) == 2:
		r.put(n, r.textOf(f.X)+".Poll("+r.arguments(n.Args)+", "+r.qualified("client.PollQuery")+"{})")
	case isClient && method == "Acquire" && len(n.Args) == 3:
		r.put(n.Args[2], r.qualified("task.Event")+"{TaskID: "+r.textOf(n.Args[2])+"}")
	case isClient && (method == "SendStatus" || method == "SendRunnerStatus") && len(n.Args) == 4:
		runner := ""
		if method == "SendRunnerStatus" {
			runner = ", RunnerResponse: true"
		}
		r.put(f.Sel, "Respond")
		r.put(n.Args[2], "&"+r.qualified("task.Task")+"{ID: "+r.textOf(n.Args[2])+runner+"}")
	}
}

// registerCapacity rewrites the capacity, a struct before, to the number of stages.
func (r *rewriter) registerCapacity(n *ast.CallExpr, f *ast.SelectorExpr) {
	capacity := n.Args[2]
	if u, ok := capacity.(*ast.UnaryExpr); ok && u.Op == token.AND {
		capacity = u.X
	}
	lit, ok := capacity.(*ast.CompositeLit)
	if !ok || len(lit.Elts) != 1 {
		r.mark("ReportCapacity takes the number of stages: pass that instead of the struct")
		r.put(f.Sel, "ReportCapacity")
		return
	}
	value := lit.Elts[0]
	if kv, ok := value.(*ast.KeyValueExpr); ok {
		value = kv.Value
	}
	r.put(f.Sel, "ReportCapacity")
	r.put(n.Args[2], r.textOf(value))
}

// setFilter rewrites a filter that is set while the poller polls. One that refuses inits is a
// maintenance.
func (r *rewriter) setFilter(n *ast.CallExpr, f *ast.SelectorExpr) {
	x := r.textOf(f.X)
	if name, ok := n.Args[0].(*ast.Ident); ok && name.Name == "nil" {
		r.put(n, x+`.SetMaintenance("")`)
		return
	}
	if inits, others := r.refusedTypes(n.Args[0]); len(inits) > 0 {
		r.put(n, x+`.SetMaintenance("maintenance mode")`)
		if len(others) > 0 {
			r.mark("a maintenance takes no new stages; the filter also refused " + strings.Join(others, " and ") + ": these tasks of open stages continue now")
		}
		return
	}
	if r.filterOfNew(n, f) {
		return
	}
	r.mark("a filter cannot change while the poller polls: use poller.WithFilter with a func(task.Event) error, or SetMaintenance with a reason to take no new stages")
}

// refusedTypes returns the types of inits, and other types, that a filter refuses if it does nothing but compare the type of
// the task with them.
func (r *rewriter) refusedTypes(filter ast.Expr) (inits, others []string) {
	lit, ok := filter.(*ast.FuncLit)
	if !ok || len(lit.Body.List) != 1 {
		return nil, nil
	}
	ret, ok := lit.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return nil, nil
	}
	left := []ast.Expr{ret.Results[0]}
	for len(left) > 0 {
		e := ast.Unparen(left[0])
		left = left[1:]
		b, ok := e.(*ast.BinaryExpr)
		if ok && b.Op == token.LAND {
			left = append([]ast.Expr{b.X, b.Y}, left...)
			continue
		}
		if !ok || b.Op != token.NEQ {
			return nil, nil
		}
		if s, ok := b.X.(*ast.SelectorExpr); !ok || s.Sel.Name != "TaskType" {
			return nil, nil
		}
		if name := r.textOf(b.Y); strings.Contains(strings.ToLower(name), "init") {
			inits = append(inits, name)
		} else {
			others = append(others, name)
		}
	}
	return inits, others
}

// filterOfNew rewrites a filter that is set in the statement after the construction of the poller: an option of the poller.
func (r *rewriter) filterOfNew(n *ast.CallExpr, f *ast.SelectorExpr) bool {
	p, isName := f.X.(*ast.Ident)
	if !isName || len(r.path) < 3 {
		return false
	}
	statement, isStatement := r.parent().(*ast.ExprStmt)
	block, isBlock := r.path[len(r.path)-3].(*ast.BlockStmt)
	if !isStatement || !isBlock {
		return false
	}
	at := slices.Index(block.List, ast.Stmt(statement))
	if at < 1 {
		return false
	}
	assign, ok := block.List[at-1].(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 1 || len(assign.Rhs) != 1 {
		return false
	}
	left, isName := assign.Lhs[0].(*ast.Ident)
	call, isCall := assign.Rhs[0].(*ast.CallExpr)
	if !isName || left.Name != p.Name || !isCall || r.oldName(call.Fun) != "poller.New" || len(call.Args) != 6 || mentions(n.Args[0], p.Name) {
		return false
	}
	r.helpers["acceptedBy"] = true
	filter := r.qualified("poller.WithFilter") + "(acceptedBy(" + r.textOf(n.Args[0]) + "))"
	r.put(call, strings.TrimSuffix(r.textOf(call), ")")+", "+filter+")")
	r.put(statement, "")
	return true
}

// mentions reports whether a name occurs in a part of the code, other than as a field or a method.
func mentions(n ast.Node, name string) bool { return len(mentionsOf(n, name)) > 0 }

func mentionsOf(n ast.Node, name string) (found []*ast.Ident) {
	members := map[*ast.Ident]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			members[n.Sel] = true
		case *ast.Ident:
			if n.Name == name && !members[n] {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}
