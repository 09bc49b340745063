// Which properties get short names in the page's script: those that src/ alone declares and never asks for by text.
import { join } from "node:path";
import ts from "typescript";

/** Their full names. A name in quotes is one of somebody else, such as the browser's or a file's, and stays. */
export function shortened(folder) {
  const { config } = ts.readConfigFile(join(folder, "tsconfig.json"), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, folder);
  const program = ts.createProgram([join(folder, "src/page.ts")], options);
  const checker = program.getTypeChecker();
  const sources = new Set(program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(join(folder, "src/"))));
  const [own, kept] = [new Set(), new Set()];

  const count = (name, symbol) => {
    const isOwn = symbol?.declarations?.every((each) => sources.has(each.getSourceFile()));
    (isOwn ? own : kept).add(name);
  };
  /** A property of a type, or of each type of a union. */
  const countIn = (type, name, otherwise) => {
    const types = type === undefined ? [] : type.isUnion() ? type.types : [type];
    const found = types.flatMap((each) => checker.getPropertyOfType(checker.getApparentType(each), name) ?? []);
    if (found.length > 0) for (const symbol of found) count(name, symbol);
    else count(name, types.some((each) => each.getStringIndexType()) ? undefined : otherwise);
  };
  const keepAll = (type) => {
    for (const { name } of type.getProperties()) kept.add(name);
  };
  /** What a text may ask for: its own words where it has a few, else all that the object has. */
  const keepAsked = (words, object) => {
    const types = words.isUnion() ? words.types : [words];
    if (types.every((each) => each.isStringLiteral())) for (const { value } of types) kept.add(value);
    else if (types.some((each) => each.flags & ts.TypeFlags.StringLike)) keepAll(object);
  };
  const visit = (node) => {
    const typeOf = checker.getTypeAtLocation;
    if (ts.isPropertyAccessExpression(node)) count(node.name.text, checker.getSymbolAtLocation(node.name));
    else if (ts.isBindingElement(node) && ts.isObjectBindingPattern(node.parent)) {
      const name = node.propertyName ?? node.name;
      if (ts.isIdentifier(name) && !node.dotDotDotToken) countIn(typeOf(node.parent), name.text);
    } else if (ts.isObjectLiteralElement(node) && node.name) {
      const context = checker.getContextualType(node.parent);
      if (ts.isIdentifier(node.name)) countIn(context, node.name.text, checker.getSymbolAtLocation(node.name));
      else if (ts.isComputedPropertyName(node.name)) keepAsked(typeOf(node.name.expression), typeOf(node.parent));
      else if (context === undefined) kept.add(node.name.text);
    } else if (ts.isElementAccessExpression(node) && !ts.isStringLiteral(node.argumentExpression)) keepAsked(typeOf(node.argumentExpression), typeOf(node.expression));
    else if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.InKeyword) keepAsked(typeOf(node.left), typeOf(node.right));
    else if (ts.isCallExpression(node) && /^Object\.(entries|keys)$/.test(node.expression.getText())) node.arguments.map(typeOf).forEach(keepAll);
    ts.forEachChild(node, visit);
  };
  sources.forEach(visit);
  return [...own].filter((name) => !kept.has(name));
}
