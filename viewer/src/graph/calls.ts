/** A frame for each call of a module that is called again at another place. The rule is that of `gradir.ir.frames`. */
import { roles } from "../data/model.ts";
import type { Model } from "../data/model.ts";
import { depths } from "./columns.ts";
import type { Parts } from "./parts.ts";
import type { Wires } from "./wiring.ts";

const [parameterRole, functionRole] = [roles.indexOf("parameter"), roles.indexOf("function")];

/** Splits parts whose nodes no line joins, if these groups are no more than the calls. Changes `found`; a parameter is where it is first used. */
export function splitCalls({ scopes, nodes }: Model, { scope, of, parent, part }: Parts, wires: Wires): void {
  const depth = Array.from(depths(parent));
  const again = of.map((own) => scopes.calls[own] > 1);
  const deepest = again.reduce((most, is, own) => (is ? Math.max(most, depth[own]) : most), 0);
  for (let level = 1; level <= deepest; level++) {
    const above: number[] = [];
    for (let own = 0; own < of.length; own++) above[own] = depth[own] < level ? -1 : depth[own] > level ? above[parent[own]] : again[own] ? own : -1;
    const within = (node: number): number => above[scope[node]] ?? -1;
    const top = Int32Array.from(scope.keys());
    const find = (node: number): number => {
      while (top[node] !== node) node = top[node] = top[top[node]];
      return node;
    };
    for (let wire = 0; wire < wires.count; wire++) {
      const [from, to] = [wires.from[wire], wires.to[wire]];
      if (within(from) >= 0 && within(from) === within(to) && (nodes.role[from] !== parameterRole || top[from] === from)) top[find(from)] = find(to);
    }
    const groups = new Int32Array(scope.length).fill(-1);
    const counts = new Int32Array(of.length);
    for (let node = 0; node < scope.length; node++) if (within(node) >= 0 && nodes.role[node] === functionRole && groups[find(node)] < 0) groups[find(node)] = counts[within(node)]++;
    // The first group stays, and so does a buffer that no line joins; the others get parts like those that hold them now.
    const last = of.length;
    const made = new Map<string, number>();
    const siblings = new Map<string, number>();
    for (let own = 0; own < last; own++) siblings.set(`${parent[own]} ${of[own]}`, Math.max(part[own] + 1, siblings.get(`${parent[own]} ${of[own]}`) ?? 0));
    for (let node = 0; node < scope.length; node++) {
      const own = within(node);
      const group = own < 0 || counts[own] > scopes.calls[of[own]] ? 0 : groups[find(node)];
      if (group <= 0) continue;
      const way: number[] = [];
      for (let inner = scope[node]; depth[inner] >= level; inner = parent[inner]) way.push(inner);
      let holder = parent[own];
      for (const inner of way.reverse()) {
        const key = `${inner} ${group}`;
        let number = made.get(key);
        if (number === undefined) {
          made.set(key, (number = of.length));
          const among = `${holder} ${of[inner]}`;
          const place = inner === own ? siblings.get(among)! : part[inner];
          siblings.set(among, place + 1);
          of.push(of[inner]);
          parent.push(holder);
          part.push(place);
          depth.push(depth[inner]);
          again.push(again[inner]);
        }
        holder = number;
      }
      scope[node] = holder;
    }
  }
}
